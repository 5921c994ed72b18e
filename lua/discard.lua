--[[
  discard: drop entries of shards that were settled and counted before; a race between two writers queued them once more.
  What queueing them took from the counters is given back.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  counters hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3…] groups of five: entry, delivery count, shard, run, state it was counted under before ('' for none)
  Returns  for each entry 1 dropped, 0 lease lost (nothing written)
]]
--@include _lease
--@include _place
--@include _run

local stream, places, progress, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer = ARGV[1], ARGV[2]
local results = {}
for i = 3, #ARGV, 5 do
  local entry, count, shard, run, was = unpack(ARGV, i, i + 4)
  local held = lease_is_held(stream, group, consumer, entry, count)
  if held then
    leave_stream(stream, group, places, shard, entry)
    redis.call('HDEL', progress, shard)
    if was ~= '' then add(counters, was, 1) end
    count_into_run(counters, run, -1)
  end
  results[#results + 1] = held and 1 or 0
end
return results
