--[[
  look_again: all that is known of shards, or of entries, in one moment. Reads only: in a full Redis it works where a
  transaction is refused.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  delayed sorted set
  KEYS[5]  dead stream
  ARGV[1]  group
  ARGV[2…] pairs: shard ('' for none), entry of the shards stream ('' for none)
  Returns  for each {place or '', 1 when the shard is there, 1 when it is delayed, progress or '', 1 when the entry is there,
           1 when the entry is pending}; 0 when not
]]
--@include _astray
--@include _place

local stream, places, progress, delayed, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group = ARGV[1]

local function is_at(place, shard)
  return is_there(place, shard, stream, delayed, dead) and not is_of_another(place, shard, stream, dead)
end

local function is_pending(entry)
  local pending = redis.pcall('XPENDING', stream, group, entry, entry, 1)
  return not pending.err and #pending > 0
end

local function facts(shard, entry)
  local place = redis.call('HGET', places, shard) or ''
  return {
    place,
    place ~= '' and is_at(place, shard) and 1 or 0,
    redis.call('ZSCORE', delayed, shard) and 1 or 0,
    redis.call('HGET', progress, shard) or '',
    entry ~= '' and #redis.call('XRANGE', stream, entry, entry) or 0,
    entry ~= '' and is_pending(entry) and 1 or 0,
  }
end

local found = {}
for i = 2, #ARGV, 2 do
  found[#found + 1] = facts(ARGV[i], ARGV[i + 1])
end
return found
