--[[
  replay: put dead shards back onto the work stream with their checkpoint and no attempts spent.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  dead stream
  KEYS[5]  counters hash
  ARGV[1]  version of what is written
  ARGV[2]  run the shards go on in
  ARGV[3]  control channel
  ARGV[4…] groups of six: dead entry, shard, job, page, cursor, counts (JSON list)
  Returns  for each 1 replayed, 0 it is not dead under that entry (nothing written)
]]
--@include _place
--@include _progress
--@include _run

local stream, places, progress_key, dead, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local version, run, channel = ARGV[1], ARGV[2], ARGV[3]
local results = {}
for i = 4, #ARGV, 6 do
  local letter, shard, job, page, cursor, counts = unpack(ARGV, i, i + 5)
  local is_dead = redis.call('HGET', places, shard) == among_dead(letter)
  if is_dead then
    local progress = fresh_progress(version, job, run)
    progress.page, progress.cursor, progress.counts = tonumber(page), cursor, cjson.decode(counts)
    save_progress(progress_key, shard, progress)
    local entry = redis.call('XADD', stream, '*', 'v', version, 'shard', shard, 'job', job, 'run', run)
    redis.call('HSET', places, shard, on_stream(entry))
    redis.call('XDEL', dead, letter)
    count_settled(counters, 'failed', run, -1)
  end
  results[#results + 1] = is_dead and 1 or 0
end
redis.call('PUBLISH', channel, 'work')
return results
