-- Counters of shards, and of the newest run; when the import last moved. A run is finished while nothing of it is left.
--@include _now
--@include _count

local function begin_run(counters, run, now)
  if redis.call('HGET', counters, 'run') == run then return end
  redis.call('HDEL', counters, 'run_finished', 'run_total', 'run_left', 'run_done', 'run_failed', 'run_split', 'run_cancelled')
  redis.call('HSET', counters, 'run', run, 'run_started', iso(now))
end

local function is_newest_run(counters, run)
  return redis.call('HGET', counters, 'run') == run
end

local function count_into_run(counters, run, change)
  if not is_newest_run(counters, run) then return end
  add(counters, 'run_total', change)
  if add(counters, 'run_left', change) > 0 then
    redis.call('HDEL', counters, 'run_finished')
  else
    redis.call('HSET', counters, 'run_finished', iso(now_us()))
  end
end

-- change is 1 when a shard reaches the final state, -1 when it leaves it again (replay).
local function count_settled(counters, state, run, change)
  add(counters, state, change)
  if not is_newest_run(counters, run) then return end
  add(counters, 'run_' .. state, change)
  if add(counters, 'run_left', -change) > 0 then
    redis.call('HDEL', counters, 'run_finished')
  else
    redis.call('HSET', counters, 'run_finished', iso(now_us()))
  end
end

-- A claim, a page, or work after there was none: what `stalled` is measured from.
local function has_moved(counters)
  redis.call('HSET', counters, 'moved', as_text(now_us()))
end
