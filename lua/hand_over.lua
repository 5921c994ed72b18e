--[[
  hand_over: leave a shard to a newer version of us, because its ledger row is one. The message is written anew under that
  version, so that older workers leave it alone.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  entry
  ARGV[4]  delivery count seen when claimed
  ARGV[5]  shard
  ARGV[6]  job
  ARGV[7]  run
  ARGV[8]  version of the ledger row
  Returns  1 handed over, 0 lease lost (nothing written)
]]
--@include _lease
--@include _place

local stream, places = KEYS[1], KEYS[2]
local group, consumer, entry, count, shard, job, run, version = unpack(ARGV, 1, 8)
if not lease_is_held(stream, group, consumer, entry, count) then return 0 end
renew_lease(stream, group, consumer, entry)
local renewed = redis.call('XADD', stream, '*', 'v', version, 'shard', shard, 'job', job, 'run', run)
redis.call('HSET', places, shard, on_stream(renewed))
leave_stream(stream, group, places, shard, entry)
return 1
