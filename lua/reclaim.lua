--[[
  reclaim: take over shards whose lease ran out, unless the import is paused. The caller's own leases are renewed first,
  so that XAUTOCLAIM can only meet others' entries.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  paused hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  age in milliseconds from which a lease has run out
  ARGV[4]  cursor where the last scan ended, 0-0 to begin
  ARGV[5]  most shards to take
  ARGV[6]  newest version the caller understands
  ARGV[7]  the import's name
  ARGV[8…] pairs: entry, delivery count of the caller's own leases on this stream
  Returns  {entries left to a newer version, rows, cursor to go on at}; a row is {1, entry, delivery count, fields,
           progress or ''}
]]
--@include _lease
--@include _claimed

local stream, places, progress, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer, min_idle, cursor, most, version, name = unpack(ARGV, 1, 7)
for i = 8, #ARGV, 2 do
  if lease_is_held(stream, group, consumer, ARGV[i], ARGV[i + 1]) then
    redis.call('XCLAIM', stream, group, consumer, 0, ARGV[i], 'JUSTID')
  end
end
if redis.call('HEXISTS', paused, name) == 1 then return {0, {}, cursor} end

-- Redis 6.2 hands deleted entries over as nothing, without their id; they are found as ours and acknowledged.
local function forget_deleted()
  for _, item in ipairs(redis.call('XPENDING', stream, group, '-', '+', 1000, consumer)) do
    if not redis.call('XRANGE', stream, item[1], item[1])[1] then redis.call('XACK', stream, group, item[1]) end
  end
end

local rows, too_new, deleted = {}, 0, false
local scan = redis.pcall('XAUTOCLAIM', stream, group, consumer, min_idle, cursor, 'COUNT', most)
if scan.err then return {0, rows, '0-0'} end
for _, entry in ipairs(scan[2]) do
  if entry then
    local pending = redis.call('XPENDING', stream, group, entry[1], entry[1], 1)[1]
    local row, why = claimed_row(1, stream, places, progress, group, version, entry[1], entry[2], pending[4])
    if row then rows[#rows + 1] = row elseif why == 'newer' then too_new = too_new + 1 end
  else
    deleted = true
  end
end
if deleted then forget_deleted() end
return {too_new, rows, scan[1]}
