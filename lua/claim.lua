--[[
  claim: take up to a number of shards over all the caller's imports together: what was released before what is new,
  nothing from a paused import. A missing group is made again at 0.

  KEYS[1]  paused hash
  KEYS[2…] groups of four for each import: shards stream, places hash, progress hash, counters hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  most shards to take
  ARGV[4]  newest version the caller understands
  ARGV[5…] the imports' names, in the order of their keys
  Returns  {entries left to a newer version, rows, entries that were pending but deleted}; a row is {number of the import,
           entry, delivery count, fields, progress or ''}
]]
--@include _claimed
--@include _run

local paused = KEYS[1]
local group, consumer, left, version = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local rows, too_new, deleted = {}, 0, 0

local function take(number, stream, places, progress, entry, fields, count)
  local row, why = claimed_row(number, stream, places, progress, group, version, entry, fields, count)
  if row then
    rows[#rows + 1] = row
    left = left - 1
  elseif why == 'newer' then
    too_new = too_new + 1
  end
end

local function understood(stream, entry)
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  return found and not is_newer(as_map(found[2]), version)
end

local function take_from(number, stream, places, progress, former)
  local pending = redis.pcall('XPENDING', stream, group, '-', '+', math.max(left, 100), former)
  if pending.err then return end
  for _, item in ipairs(pending) do
    if left > 0 and (former ~= NEWER or understood(stream, item[1])) then
      local claimed = redis.call('XCLAIM', stream, group, consumer, 0, item[1])[1]
      if claimed then
        take(number, stream, places, progress, claimed[1], claimed[2], item[4] + 1)
      else
        redis.call('XACK', stream, group, item[1])
        deleted = deleted + 1
      end
    end
  end
end

local function read_new(stream)
  local read = redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', left, 'STREAMS', stream, '>')
  if read and read.err then
    if not string.find(read.err, 'NOGROUP') then return {} end
    redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
    read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', left, 'STREAMS', stream, '>')
  end
  return read and read[1] and read[1][2] or {}
end

for number = 1, #ARGV - 4 do
  local stream, places, progress, counters = unpack(KEYS, number * 4 - 2, number * 4 + 1)
  local left_before = left
  if left > 0 and redis.call('HEXISTS', paused, ARGV[number + 4]) == 0 then
    take_from(number, stream, places, progress, 'released')
    if left > 0 then take_from(number, stream, places, progress, NEWER) end
    if left > 0 then
      for _, entry in ipairs(read_new(stream)) do
        take(number, stream, places, progress, entry[1], entry[2], 1)
      end
    end
    if left < left_before then has_moved(counters) end
  end
end
return {too_new, rows, deleted}
