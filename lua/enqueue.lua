--[[
  enqueue: put planned shards onto the work stream, each at most once.
  A shard that has a place already (queued, leased, delayed or dead) is left where it is, unless that place is gone:
  then it is put back, and counted as what it was.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  counters hash
  KEYS[5]  delayed sorted set
  KEYS[6]  dead stream
  ARGV[1]  version of what is written
  ARGV[2]  run
  ARGV[3]  1 when the run is a new one that becomes the newest, 0 when it may be an older one
  ARGV[4]  control channel
  ARGV[5…] groups of six: shard, job, state it is counted under ('' for none), page, cursor, counts (JSON list, '' for none)
  Returns  for each shard 1 queued, 0 it has a place already
]]
--@include _run
--@include _progress
--@include _place

local stream, places, progress_key, counters, delayed, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local version, run, begins, channel = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4]
local now = now_us()
local results, added = {}, 0
local was_empty = redis.call('XLEN', stream) == 0
for i = 5, #ARGV, 6 do
  local shard, job, counted_as, page, cursor, counts = unpack(ARGV, i, i + 5)
  local place = redis.call('HGET', places, shard)
  if place and is_there(place, shard, stream, delayed, dead) then
    results[#results + 1] = 0
  else
    if counts ~= '' then
      local progress = fresh_progress(version, job, run)
      progress.page, progress.cursor, progress.counts = tonumber(page), cursor, cjson.decode(counts)
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
      count_settled(counters, 'failed', run, -1)
    end
    added = added + 1
    results[#results + 1] = 1
  end
end
if added > 0 then
  redis.call('HSETNX', counters, 'since', iso(now))
  if was_empty then has_moved(counters) end
  redis.call('PUBLISH', channel, 'work')
end
return results
