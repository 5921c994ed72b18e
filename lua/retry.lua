--[[
  retry: take a shard off the stream and let it come back later. Added at the new place first, removed from the old last.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  delayed sorted set
  KEYS[5]  counters hash
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
  ARGV[12] attempts spent
  ARGV[13] crashes
  ARGV[14] milliseconds to wait
  Returns  1 delayed, 0 lease lost (nothing written)
]]
--@include _now
--@include _lease
--@include _place
--@include _progress

local stream, places, progress_key, delayed, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, consumer, entry, count, shard, job, run, version, page, cursor, counts, attempts, crashes, wait = unpack(ARGV, 1, 14)
if not lease_is_held(stream, group, consumer, entry, count) then return 0 end
renew_lease(stream, group, consumer, entry)
local progress = load_progress(progress_key, shard) or fresh_progress(version, job, run)
set_totals(counters, progress, tonumber(page), cursor, cjson.decode(counts))
progress.job, progress.run, progress.attempts, progress.crashes = job, run, tonumber(attempts), tonumber(crashes)
save_progress(progress_key, shard, progress)
redis.call('ZADD', delayed, as_text(now_us() / 1000 + tonumber(wait)), shard)
redis.call('HSET', places, shard, DELAYED)
redis.call('XACK', stream, group, entry)
redis.call('XDEL', stream, entry)
return 1
