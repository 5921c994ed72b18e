--[[
  reap_consumer: forget consumers that are gone. One that still has pending entries is kept: deleting it would throw
  those away.

  KEYS[1]  shards stream
  ARGV[1]  group
  ARGV[2…] consumers
  Returns  how many were forgotten
]]
local stream, group = KEYS[1], ARGV[1]
local reaped = 0
for i = 2, #ARGV do
  local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, ARGV[i])
  if not pending.err and #pending == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, ARGV[i])
    reaped = reaped + 1
  end
end
return reaped
