-- Each shard in flight has exactly one place: 's<entry>' on the work stream, 'd' delayed, 'x<entry>' dead.

local DELAYED = 'd'
local MAX_SHARD_KEY = 256

local function on_stream(entry) return 's' .. entry end
local function among_dead(entry) return 'x' .. entry end

local function was_dead(place) return string.sub(place, 1, 1) == 'x' end

-- Whether the shard is really where its place says: entries can be deleted by hand, or lost.
local function is_there(place, shard, stream, delayed, dead)
  local kind, entry = string.sub(place, 1, 1), string.sub(place, 2)
  if kind == DELAYED then return redis.call('ZSCORE', delayed, shard) ~= false end
  local found = redis.pcall('XRANGE', kind == 'x' and dead or stream, entry, entry)
  return not found.err and #found > 0
end

-- Frees an entry and, when the shard is at that entry, its place. Frees only, so it works when Redis is full.
local function leave_stream(stream, group, places, shard, entry)
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
  if redis.call('HGET', places, shard) == on_stream(entry) then redis.call('HDEL', places, shard) end
end
