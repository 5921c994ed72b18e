--[[
  sweep: remove what is left of shards that are not where it says: a delayed shard that nobody can promote, progress of one that
  is not in flight, a place of another shard. A place where there is nothing goes only when the ledger has no more work for the
  shard: else whoever queues it counts by that place. Frees only, so it works when Redis is full.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  delayed sorted set
  KEYS[5]  dead stream
  ARGV[1]  newest version the caller understands
  ARGV[2…] pairs: shard, 1 when the ledger has no more work for it, else 0
  Returns  how many shards something was removed of
]]
--@include _astray
--@include _claimed
--@include _place
--@include _progress

local stream, places, progress_key, delayed, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local version = ARGV[1]

local function is_of_a_newer_version(shard)
  local stored = redis.call('HGET', progress_key, shard)
  return stored and is_newer({v = string.match(stored, '"v":(%d+)')}, version)
end

local function can_be_promoted(shard)
  local progress = load_progress(progress_key, shard)
  return progress and progress.v and progress.job and progress.run
end

-- Something was removed if one of these is more than 0.
local function sweep(shard, is_over)
  if is_of_a_newer_version(shard) then return 0 end
  local removed = 0
  local place = redis.call('HGET', places, shard)
  if place ~= DELAYED or not can_be_promoted(shard) then removed = redis.call('ZREM', delayed, shard) end
  if place and (place == DELAYED or string.find(place, '^[sx]%d+%-%d+$')) then
    local is_nowhere = not is_there(place, shard, stream, delayed, dead)
    if is_of_another(place, shard, stream, dead) or (is_nowhere and is_over) then
      removed = removed + redis.call('HDEL', places, shard)
      place = nil
    end
  end
  if not place then removed = removed + redis.call('HDEL', progress_key, shard) end
  return removed
end

local changed = 0
for i = 2, #ARGV, 2 do
  if sweep(ARGV[i], ARGV[i + 1] == '1') > 0 then changed = changed + 1 end
end
return changed
