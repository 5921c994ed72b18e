--[[
  complete: settle shards that reached a final state in the ledger. Frees first, then counts, so that it works when Redis
  is full.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  counters hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  final state: done, split or cancelled
  ARGV[4]  version of what is written
  ARGV[5…] groups of seven: entry, delivery count, shard, run, pages stored, cursor, counts (JSON list)
  Returns  for each shard 1 settled, 0 lease lost or settled before (nothing written)
]]
--@include _lease
--@include _place
--@include _progress
--@include _run

local stream, places, progress_key, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, state, version = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local results = {}
for i = 5, #ARGV, 7 do
  local entry, count, shard, run, page, cursor, counts = unpack(ARGV, i, i + 6)
  local held = lease_is_held(stream, group, consumer, entry, count)
  if held then
    local progress = load_progress(progress_key, shard) or fresh_progress(version, '', run)
    leave_stream(stream, group, places, shard, entry)
    redis.call('HDEL', progress_key, shard)
    set_totals(counters, progress, tonumber(page), cursor, cjson.decode(counts))
    count_settled(counters, state, run, 1)
    has_moved(counters)
  end
  results[#results + 1] = held and 1 or 0
end
return results
