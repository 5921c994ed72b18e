--[[
  recount: replace counters by what the ledger adds up to. Where there are counters this is allowed only while nothing is in
  flight and when nothing was counted since they were read: what is being settled is in the ledger first.

  KEYS[1]  counters hash
  KEYS[2]  shards stream
  KEYS[3]  delayed sorted set
  ARGV[1]  number of arguments that tell what was read
  ARGV[2…] pairs of field and value as read ('' for none); then pairs of field and value wanted ('' for none)
  Returns  1 replaced, 0 something is in flight or has been counted meanwhile (nothing written)
]]
--@include _now

local counters, stream, delayed = KEYS[1], KEYS[2], KEYS[3]
local wanted_from = 2 + tonumber(ARGV[1])
if redis.call('HEXISTS', counters, 'since') == 1 then
  if redis.call('XLEN', stream) > 0 or redis.call('ZCARD', delayed) > 0 then return 0 end
  for i = 2, wanted_from - 1, 2 do
    if (redis.call('HGET', counters, ARGV[i]) or '') ~= ARGV[i + 1] then return 0 end
  end
end
for i = wanted_from, #ARGV, 2 do
  redis.call('HDEL', counters, ARGV[i])
  if ARGV[i + 1] ~= '' then redis.call('HSET', counters, ARGV[i], ARGV[i + 1]) end
end
redis.call('HSETNX', counters, 'since', iso(now_us()))
return 1
