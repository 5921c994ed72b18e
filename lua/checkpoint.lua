--[[
  checkpoint: remember how far a shard is, count its records, and renew its lease.
  It carries the page number and sets totals: a second run changes nothing, an earlier page is ignored. A shard that gets
  on is no suspect any more.

  KEYS[1]  shards stream
  KEYS[2]  progress hash
  KEYS[3]  counters hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  entry
  ARGV[4]  delivery count seen when claimed
  ARGV[5]  shard
  ARGV[6]  job
  ARGV[7]  run
  ARGV[8]  version of what is written
  ARGV[9]  pages stored
  ARGV[10] cursor
  ARGV[11] counts (JSON list)
  Returns  1 done, 0 lease lost (nothing written)
]]
--@include _lease
--@include _progress
--@include _run

local stream, progress_key, counters = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, entry, count, shard, job, run, version, page, cursor, counts = unpack(ARGV, 1, 11)
if not lease_is_held(stream, group, consumer, entry, count) then return 0 end
renew_lease(stream, group, consumer, entry)
local progress = load_progress(progress_key, shard) or fresh_progress(version, job, run)
if tonumber(page) > progress.page then
  has_moved(counters)
  progress.crashes = 0
end
set_totals(counters, progress, tonumber(page), cursor, cjson.decode(counts))
save_progress(progress_key, shard, progress)
return 1
