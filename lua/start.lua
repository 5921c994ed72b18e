--[[
  start: note that claimed shards run from now on, and under whom. If that worker is gone when the lease has run out, they are
  charged with a crash; those that it had claimed but not started are not.

  KEYS[1]  shards stream
  KEYS[2]  progress hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  version of what is written
  ARGV[4…] groups of five: entry, delivery count seen when claimed, shard, job, run
  Returns  for each shard 1 noted, 0 lease lost (nothing written)
]]
--@include _lease
--@include _progress

local stream, progress_key = KEYS[1], KEYS[2]
local group, consumer, version = ARGV[1], ARGV[2], ARGV[3]
local results = {}
for i = 4, #ARGV, 5 do
  local entry, count, shard, job, run = unpack(ARGV, i, i + 4)
  local held = lease_is_held(stream, group, consumer, entry, count)
  if held then
    renew_lease(stream, group, consumer, entry)
    local progress = load_progress(progress_key, shard) or fresh_progress(version, job, run)
    progress.started = lease_name(consumer, count)
    save_progress(progress_key, shard, progress)
  end
  results[#results + 1] = held and 1 or 0
end
return results
