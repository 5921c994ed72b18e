-- What a shard has behind it: {v, job, run, attempts, crashes, page, cursor, counts}, and who started it last (started).
-- Only shards that have something behind them have an entry. The cursor is opaque text and the counts are small integers, so JSON numbers lose nothing.
--@include _count

-- In the order of domain.model.Counts; a test compares the two.
local COUNT_NAMES = {'inserted', 'updated', 'unchanged', 'stale', 'rejected',
  'requests_ok', 'requests_rate_limited', 'requests_failed'}

local function fresh_progress(version, job, run)
  return {v = tonumber(version), job = job, run = run, attempts = 0, crashes = 0, page = 0, cursor = '',
    counts = {0, 0, 0, 0, 0, 0, 0, 0}}
end

local function load_progress(key, shard)
  local stored = redis.call('HGET', key, shard)
  if not stored then return nil end
  local ok, progress = pcall(cjson.decode, stored)
  if not ok or type(progress) ~= 'table' or type(progress.page) ~= 'number' or type(progress.counts) ~= 'table' then
    return nil
  end
  for i = 1, #COUNT_NAMES do
    if type(progress.counts[i]) ~= 'number' then return nil end
  end
  -- Older versions of us do not count crashes, and whoever else writes here may write anything.
  if type(progress.crashes) ~= 'number' then progress.crashes = 0 end
  return progress
end

local function save_progress(key, shard, progress)
  redis.call('HSET', key, shard, cjson.encode(progress))
end

-- Moves the import's counters from what the shard has counted so far to its totals.
local function count_totals(counters, progress, totals)
  for i, name in ipairs(COUNT_NAMES) do
    local change = totals[i] - progress.counts[i]
    if change ~= 0 then add(counters, name, change) end
  end
end

-- Sets the shard's totals and moves the import's counters by the difference, so that a repetition changes nothing.
-- Totals of an earlier page are a late repetition and are ignored.
local function set_totals(counters, progress, page, cursor, totals)
  if page < progress.page then return end
  count_totals(counters, progress, totals)
  progress.page, progress.cursor, progress.counts = page, cursor, totals
end
