--[[
  adopt: list what the caller owns, so that it finds the shards of a claim whose reply was lost. Takes nothing from others.

  KEYS[1…] groups of three for each import: shards stream, places hash, progress hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  newest version the caller understands
  ARGV[4]  most entries to list for each import
  Returns  {entries left to a newer version, rows, entries that were pending but deleted}; a row is {number of the import,
           entry, delivery count, fields, progress or ''}
]]
--@include _claimed

local group, consumer, version, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local rows, too_new, deleted = {}, 0, 0
for first = 1, #KEYS, 3 do
  local stream, places, progress = KEYS[first], KEYS[first + 1], KEYS[first + 2]
  local pending = redis.pcall('XPENDING', stream, group, '-', '+', most, consumer)
  if not pending.err then
    for _, item in ipairs(pending) do
      local found = redis.call('XRANGE', stream, item[1], item[1])[1]
      if found then
        local row, why = claimed_row((first + 2) / 3, stream, places, progress, group, version, found[1], found[2], item[4])
        if row then rows[#rows + 1] = row elseif why == 'newer' then too_new = too_new + 1 end
      else
        redis.call('XACK', stream, group, item[1])
        deleted = deleted + 1
      end
    end
  end
end
return {too_new, rows, deleted}
