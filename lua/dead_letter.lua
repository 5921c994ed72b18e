--[[
  dead_letter: move a shard (or garbage) to the dead-letter stream, with what a person needs to know.
  Added at the new place first, removed from the old last. It begins by renewing the lease: in a full Redis a script may add
  only when its first write added nothing. Beyond the most letters to keep, the oldest are dropped; the ledger has their shards.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  dead stream
  KEYS[5]  counters hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  entry
  ARGV[4]  delivery count seen when claimed
  ARGV[5]  shard, '' for garbage
  ARGV[6]  run
  ARGV[7]  version of what is written
  ARGV[8]  pages stored
  ARGV[9]  cursor
  ARGV[10] counts (JSON list)
  ARGV[11] first seen, microseconds since the epoch
  ARGV[12] what garbage calls its shard, '' for none
  ARGV[13] most letters to keep
  ARGV[14…] pairs of field and value that go into the dead letter as they are
  Returns  {1 dead-lettered, 0 lease lost (nothing written); how many old letters were dropped}
]]
--@include _lease
--@include _letter
--@include _place
--@include _progress
--@include _run

local stream, places, progress_key, dead, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, consumer, entry, count, shard, run, version, page, cursor, counts, first_seen, garbage, most = unpack(ARGV, 1, 13)

-- A stream that grew before there was a limit is cut down over several calls: no call takes long.
local MOST_DROPPED = 1000

local function drop_oldest()
  local over = redis.call('XLEN', dead) - tonumber(most)
  if over <= 0 then return 0 end
  local oldest = redis.call('XRANGE', dead, '-', '+', 'COUNT', math.min(over, MOST_DROPPED))
  for _, found in ipairs(oldest) do remove_letter(dead, places, found[1]) end
  add(counters, 'letters_dropped', #oldest)
  return #oldest
end

if not lease_is_held(stream, group, consumer, entry, count) then return {0, 0} end
renew_lease(stream, group, consumer, entry)
local letter = redis.call('XADD', dead, '*', 'shard', shard, 'first_seen', iso(tonumber(first_seen)),
  'died_at', iso(now_us()), unpack(ARGV, 14))
add(counters, 'dead_lettered', 1)
if shard ~= '' then
  local progress = load_progress(progress_key, shard) or fresh_progress(version, '', run)
  set_totals(counters, progress, tonumber(page), cursor, cjson.decode(counts))
  redis.call('HSET', places, shard, among_dead(letter))
  redis.call('HDEL', progress_key, shard)
  count_settled(counters, 'failed', run, 1)
end
if garbage ~= '' and redis.call('HGET', places, garbage) == on_stream(entry) then
  redis.call('HDEL', progress_key, garbage)
end
leave_stream(stream, group, places, garbage, entry)
return {1, drop_oldest()}
