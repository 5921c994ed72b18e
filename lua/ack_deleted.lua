--[[
  ack_deleted: acknowledge entries that somebody deleted while they were pending. Whoever holds one learns that its lease is
  lost, so that the shard can be put back from the ledger. Frees only, so it works when Redis is full.

  KEYS[1]  shards stream
  ARGV[1]  group
  ARGV[2…] entries
  Returns  how many were acknowledged; one that is there is left alone
]]
local stream, group = KEYS[1], ARGV[1]
local acknowledged = 0
for i = 2, #ARGV do
  if not redis.call('XRANGE', stream, ARGV[i], ARGV[i])[1] then
    acknowledged = acknowledged + redis.call('XACK', stream, group, ARGV[i])
  end
end
return acknowledged
