--[[
  replay: put failed shards back onto the work stream with their checkpoint and neither attempts nor crashes spent. A letter
  must still be the place of its shard; a shard without a letter must not be anywhere. Without counters nothing is replayed:
  they are rebuilt first.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  dead stream
  KEYS[5]  counters hash
  KEYS[6]  delayed sorted set
  ARGV[1]  version of what is written
  ARGV[2]  run that counted the shards, and in which they go on
  ARGV[3]  control channel
  ARGV[4…] groups of six: dead entry ('' for none), shard, job, page, cursor, counts (JSON list)
  Returns  for each 1 replayed, 0 it is elsewhere (nothing written); nothing at all when there are no counters
]]
--@include _place
--@include _progress
--@include _run

local stream, places, progress_key, dead, counters, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local version, run, channel = ARGV[1], ARGV[2], ARGV[3]

local function is_dead(letter, shard)
  local place = redis.call('HGET', places, shard)
  if letter ~= '' then return place == among_dead(letter) end
  return not place or not is_there(place, shard, stream, delayed, dead)
end

if redis.call('HEXISTS', counters, 'since') == 0 then return {} end
local was_empty = redis.call('XLEN', stream) == 0
local results, replayed = {}, 0
for i = 4, #ARGV, 6 do
  local letter, shard, job, page, cursor, counts = unpack(ARGV, i, i + 5)
  local is_wanted = is_dead(letter, shard)
  if is_wanted then
    local progress = fresh_progress(version, job, run)
    progress.page, progress.cursor, progress.counts = tonumber(page), cursor, cjson.decode(counts)
    save_progress(progress_key, shard, progress)
    local entry = redis.call('XADD', stream, '*', 'v', version, 'shard', shard, 'job', job, 'run', run)
    redis.call('HSET', places, shard, on_stream(entry))
    if letter ~= '' then redis.call('XDEL', dead, letter) end
    count_settled(counters, 'failed', run, -1)
    replayed = replayed + 1
  end
  results[#results + 1] = is_wanted and 1 or 0
end
if replayed > 0 then
  if was_empty then has_moved(counters) end
  redis.call('PUBLISH', channel, 'work')
end
return results
