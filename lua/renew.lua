--[[
  renew: keep claimed shards from being taken over.

  KEYS[1]  shards stream
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3…] pairs: entry, delivery count seen when claimed
  Returns  for each pair 1 renewed, 0 lease lost (nothing written)
]]
--@include _lease

local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local results = {}
for i = 3, #ARGV, 2 do
  local held = lease_is_held(stream, group, consumer, ARGV[i], ARGV[i + 1])
  if held then renew_lease(stream, group, consumer, ARGV[i]) end
  results[#results + 1] = held and 1 or 0
end
return results
