--[[
  enqueue: put planned shards onto the work stream, each at most once.
  A shard that has a place already (queued, leased, delayed or dead) is left where it is, unless that place is gone:
  then it is put back, and counted as what it was. A letter that a replay left behind when it was cut short goes.
  Without counters nothing is queued: they are rebuilt first, so that they are exact after a flush.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  counters hash
  KEYS[5]  delayed sorted set
  KEYS[6]  dead stream
  ARGV[1]  version of what is written
  ARGV[2]  run
  ARGV[3]  1 when the run is a new one that becomes the newest, 0 when its name (which begins with a time) tells
  ARGV[4]  control channel
  ARGV[5…] groups of eight: shard, job, state it is counted under ('' for none), page, cursor, counts (JSON list, '' when it
           has nothing behind it), attempts, crashes
  Returns  for each shard 1 queued, 0 it has a place already; nothing at all when there are no counters
]]
--@include _run
--@include _progress
--@include _place
--@include _letter

local stream, places, progress_key, counters, delayed, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local version, run, begins, channel = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4]
local now = now_us()
if redis.call('HEXISTS', counters, 'since') == 0 then return {} end
begins = begins or run > (redis.call('HGET', counters, 'run') or '')
local results, added = {}, 0
local was_empty = redis.call('XLEN', stream) == 0
for i = 5, #ARGV, 8 do
  local shard, job, counted_as, page, cursor, counts, attempts, crashes = unpack(ARGV, i, i + 7)
  local place = redis.call('HGET', places, shard)
  local is_replayed = place and counted_as == 'failed' and is_of_another_round(dead, place, job)
  if place and not is_replayed and is_there(place, shard, stream, delayed, dead) then
    results[#results + 1] = 0
  else
    if counts ~= '' then
      local progress = fresh_progress(version, job, run)
      progress.page, progress.cursor, progress.counts = tonumber(page), cursor, cjson.decode(counts)
      progress.attempts, progress.crashes = tonumber(attempts), tonumber(crashes)
      save_progress(progress_key, shard, progress)
    end
    -- A message says what its shard was counted as before, so that this can be given back if it turns out to be a mistake.
    local was = not place and counted_as ~= '' and {'was', counted_as} or {}
    local entry = redis.call('XADD', stream, '*', 'v', version, 'shard', shard, 'job', job, 'run', run, unpack(was))
    redis.call('HSET', places, shard, on_stream(entry))
    if begins and added == 0 then begin_run(counters, run, now) end
    if not place then
      if counted_as ~= '' then add(counters, counted_as, -1) end
      count_into_run(counters, run, 1)
    elseif was_dead(place) then
      if is_replayed then redis.call('XDEL', dead, string.sub(place, 2)) end
      count_settled(counters, 'failed', run, -1)
    end
    added = added + 1
    results[#results + 1] = 1
  end
end
if added > 0 then
  if was_empty then has_moved(counters) end
  redis.call('PUBLISH', channel, 'work')
end
return results
