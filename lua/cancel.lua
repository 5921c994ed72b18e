--[[
  cancel: take shards that the ledger has as cancelled from wherever they are: unread, released, leased by anybody or
  delayed. The place is the guard: what has left it is not counted a second time. Dead letters, another round of the shard
  and what a newer version of us wrote stay. Frees first, then counts, so that it works when Redis is full.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  delayed sorted set
  KEYS[5]  counters hash
  ARGV[1]  group
  ARGV[2]  newest version the caller understands
  ARGV[3]  control channel
  ARGV[4…] groups of four: shard, job, run, counts (JSON list) as the ledger has them
  Returns  for each shard 1 taken and counted, 0 nothing of that round is in flight (nothing written)
]]
--@include _claimed
--@include _place
--@include _progress
--@include _run

local stream, places, progress_key, delayed, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, version, channel = ARGV[1], ARGV[2], ARGV[3]

-- What lies at the place, as far as it can be read: {v, job, run}. Nothing when it is gone; then the place alone counts.
local function round_at(place, shard)
  if place == DELAYED then
    local progress = load_progress(progress_key, shard) or {}
    return {v = tostring(progress.v), job = progress.job, run = progress.run}
  end
  local entry = string.sub(place, 2)
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  return found and as_map(found[2]) or {}
end

-- The round to be taken, nil when there is none.
local function takeable(place, shard, job)
  if not place or (place ~= DELAYED and not string.find(place, '^s%d+%-%d+$')) then return nil end
  local round = round_at(place, shard)
  if is_newer(round, version) or is_of_newer_version(progress_key, shard, version) then return nil end
  if (round.job or job) ~= job then return nil end
  return round
end

-- Returns how many hands it was taken from.
local function take(place, shard)
  local held = 0
  if place == DELAYED then
    redis.call('ZREM', delayed, shard)
  else
    local entry = string.sub(place, 2)
    held = redis.call('XACK', stream, group, entry)
    redis.call('XDEL', stream, entry)
  end
  redis.call('HDEL', places, shard)
  redis.call('HDEL', progress_key, shard)
  return held
end

local results, held = {}, 0
for i = 4, #ARGV, 4 do
  local shard, job, run, counts = unpack(ARGV, i, i + 3)
  local place = redis.call('HGET', places, shard)
  local round = takeable(place, shard, job)
  if round then
    local progress = load_progress(progress_key, shard) or fresh_progress(version, job, run)
    held = held + take(place, shard)
    -- The ledger has had the last word: a page or a request that only Redis has heard of is taken back.
    count_totals(counters, progress, cjson.decode(counts))
    count_settled(counters, 'cancelled', round.run or run, 1)
  end
  results[#results + 1] = round and 1 or 0
end
if held > 0 then redis.call('PUBLISH', channel, 'cancel') end
return results
