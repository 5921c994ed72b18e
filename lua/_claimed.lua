-- Turns an entry that the caller has just come to own into a row for it, or disposes of it.
--@include _place
--@include _progress

-- Entries written by a newer version of us wait under this consumer, where only such a version looks.
local NEWER = 'newer'

local function as_map(fields)
  local map = {}
  for i = 1, #fields, 2 do map[fields[i]] = fields[i + 1] end
  return map
end

local function is_newer(message, version)
  local v = message['v']
  return v ~= nil and string.find(v, '^%d+$') ~= nil and tonumber(v) > tonumber(version)
end

-- Returns the row {stream number, entry, count, fields, progress or ''}; or nil and 'newer' or 'elsewhere'.
-- An entry whose shard has its place elsewhere is a duplicate and is dropped; one without a place gets this one.
local function claimed_row(number, stream, places, progress, group, version, entry, fields, count)
  local message = as_map(fields)
  if is_newer(message, version) then
    redis.call('XCLAIM', stream, group, NEWER, 0, entry, 'JUSTID')
    return nil, 'newer'
  end
  local shard = message['shard']
  if not shard or not message['job'] or #shard > MAX_SHARD_KEY or string.find(shard, '[^ -~]') then return {number, entry, count, fields, ''} end
  if is_of_newer_version(progress, shard, version) then
    redis.call('XCLAIM', stream, group, NEWER, 0, entry, 'JUSTID')
    return nil, 'newer'
  end
  local place = redis.call('HGET', places, shard)
  if not place then
    redis.call('HSET', places, shard, on_stream(entry))
  elseif place ~= on_stream(entry) then
    redis.call('XACK', stream, group, entry)
    redis.call('XDEL', stream, entry)
    return nil, 'elsewhere'
  end
  return {number, entry, count, fields, redis.call('HGET', progress, shard) or ''}
end
