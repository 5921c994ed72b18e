--[[
  release: give shards back so that anyone can take them at once. They keep their place and their count and cost nothing;
  a late renewal finds another owner.

  KEYS[1]  shards stream
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  the age in milliseconds that the entries are given
  ARGV[4]  control channel
  ARGV[5…] pairs: entry, delivery count seen when claimed
  Returns  for each pair 1 released, 0 lease lost (nothing written)
]]
--@include _lease

local stream, group, consumer, age, channel = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local results = {}
for i = 5, #ARGV, 2 do
  local held = lease_is_held(stream, group, consumer, ARGV[i], ARGV[i + 1])
  if held then
    redis.call('XCLAIM', stream, group, 'released', 0, ARGV[i], 'IDLE', age, 'RETRYCOUNT', ARGV[i + 1], 'JUSTID')
  end
  results[#results + 1] = held and 1 or 0
end
redis.call('PUBLISH', channel, 'work')
return results
