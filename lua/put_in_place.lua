--[[
  put_in_place: give queued shards that have no place, or one where there is nothing, the place where they are; and drop
  entries of shards that are elsewhere. What a newer version of us wrote is left alone.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  delayed sorted set
  KEYS[4]  dead stream
  ARGV[1]  group
  ARGV[2]  newest version the caller understands
  ARGV[3…] entries
  Returns  how many were given a place or dropped
]]
--@include _astray
--@include _claimed
--@include _place

local stream, places, delayed, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, version = ARGV[1], ARGV[2]

-- Returns whether anything was wrong with it.
local function put(entry, message)
  local shard = message['shard']
  if is_newer(message, version) or not shard or not message['job'] or #shard > MAX_SHARD_KEY then return false end
  local place = redis.call('HGET', places, shard)
  if place == on_stream(entry) then return false end
  if place and is_there(place, shard, stream, delayed, dead) and not is_of_another(place, shard, stream, dead) then
    redis.call('XACK', stream, group, entry)
    redis.call('XDEL', stream, entry)
  else
    redis.call('HDEL', places, shard) -- a script that frees first is not refused by a full Redis
    redis.call('HSET', places, shard, on_stream(entry))
  end
  return true
end

local changed = 0
for i = 3, #ARGV do
  local found = redis.call('XRANGE', stream, ARGV[i], ARGV[i])[1]
  if found and put(found[1], as_map(found[2])) then changed = changed + 1 end
end
return changed
