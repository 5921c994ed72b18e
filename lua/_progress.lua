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

-- What is no number of ours can neither be counted with nor written again: JSON knows no infinity.
local function is_count(value)
  return type(value) == 'number' and value >= 0 and value < 2 ^ 53 and value == math.floor(value)
end

local function read_counts(stored)
  local counts = {}
  for i = 1, #COUNT_NAMES do
    if type(stored) ~= 'table' or not is_count(stored[i]) then return nil end
    counts[i] = stored[i]
  end
  return counts
end

-- What a newer version of us wrote is left to it.
local function is_of_newer_version(key, shard, version)
  local stored = string.match(redis.call('HGET', key, shard) or '', '"v":(%d+)')
  return stored ~= nil and tonumber(stored) > tonumber(version)
end

-- Only what we would write ourselves, or nothing: the ledger knows the shard, too.
local function load_progress(key, shard)
  local ok, stored = pcall(cjson.decode, redis.call('HGET', key, shard) or '')
  if not ok or type(stored) ~= 'table' then return nil end
  local counts = read_counts(stored.counts)
  local is_whole = counts and is_count(stored.v) and is_count(stored.page) and is_count(stored.attempts)
    and type(stored.job) == 'string' and type(stored.run) == 'string' and type(stored.cursor) == 'string'
  if not is_whole then return nil end
  return {v = stored.v, job = stored.job, run = stored.run, attempts = stored.attempts, page = stored.page,
    cursor = stored.cursor, counts = counts,
    crashes = is_count(stored.crashes) and stored.crashes or 0, -- older versions of us do not count them
    started = type(stored.started) == 'string' and stored.started or nil}
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
