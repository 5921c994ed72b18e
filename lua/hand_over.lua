--[[
  hand_over: leave a shard to a newer version of us, because its ledger row is one. The message is written anew under that
  version, so that older workers leave it alone.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  entry
  ARGV[4]  delivery count seen when claimed
  ARGV[5]  shard
  ARGV[6]  job
  ARGV[7]  run
  ARGV[8]  version of the ledger row
  ARGV[9]  1 when somebody has held the shard in this round before, so that this is not forgotten with the entry
  Returns  1 handed over, 0 lease lost (nothing written)
]]
--@include _lease
--@include _place
--@include _progress

local stream, places, progress_key = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, entry, count, shard, job, run, version, held_before = unpack(ARGV, 1, 9)
if not lease_is_held(stream, group, consumer, entry, count) then return 0 end
if held_before == '1' then
  local progress = load_progress(progress_key, shard) or fresh_progress(version, job, run)
  progress.held = 1
  save_progress(progress_key, shard, progress)
end
local renewed = redis.call('XADD', stream, '*', 'v', version, 'shard', shard, 'job', job, 'run', run)
redis.call('HSET', places, shard, on_stream(renewed))
leave_stream(stream, group, places, shard, entry)
return 1
