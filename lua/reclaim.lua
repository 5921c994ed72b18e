--[[
  reclaim: take over shards whose lease ran out, unless the import is paused. The caller's own leases are renewed first,
  so that XAUTOCLAIM can only meet others' entries. Whoever was running when its worker was lost is charged with a crash.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  paused hash
  KEYS[5]  workers hash
  ARGV[1]  group
  ARGV[2]  consumer
  ARGV[3]  age in milliseconds from which a lease has run out
  ARGV[4]  cursor where the last scan ended, 0-0 to begin
  ARGV[5]  most shards to take
  ARGV[6]  newest version the caller understands
  ARGV[7]  the import's name
  ARGV[8]  milliseconds for which the server has been there: who has been silent for longer is charged with nothing
  ARGV[9…] pairs: entry, delivery count of the caller's own leases on this stream
  Returns  {entries left to a newer version, rows, entries that were pending but deleted, cursor to go on at}; a row is {1,
           entry, delivery count, fields, progress or ''}
]]
--@include _lease
--@include _claimed
--@include _crash

local stream, places, progress, paused, workers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, consumer, min_idle, cursor, most, version, name, there = unpack(ARGV, 1, 8)
for i = 9, #ARGV, 2 do
  if lease_is_held(stream, group, consumer, ARGV[i], ARGV[i + 1]) then renew_lease(stream, group, consumer, ARGV[i]) end
end
if redis.call('HEXISTS', paused, name) == 1 then return {0, {}, 0, cursor} end

-- XAUTOCLAIM does not tell whose entries it took. They are all among these: it goes through ten times as many as it takes.
local owners = {}
local stale = redis.pcall('XPENDING', stream, group, 'IDLE', min_idle, cursor == '0-0' and '-' or cursor, '+', most * 10)
if stale.err then return {0, {}, 0, '0-0'} end
for _, item in ipairs(stale) do
  owners[item[1]] = {lease = lease_name(item[2], item[4]), is_crash = item[3] <= tonumber(there) and is_gone(workers, item[2], tonumber(min_idle))}
end

-- Redis 6.2 hands deleted entries over as nothing, without their id; they are found as ours and acknowledged. Redis 7 has
-- dropped them itself.
local function forget_deleted(scan)
  if scan[3] then return #scan[3] end
  local deleted = 0
  for _, item in ipairs(redis.call('XPENDING', stream, group, '-', '+', 1000, consumer)) do
    if not redis.call('XRANGE', stream, item[1], item[1])[1] then
      redis.call('XACK', stream, group, item[1])
      deleted = deleted + 1
    end
  end
  return deleted
end

local rows, too_new, has_deleted = {}, 0, false
local scan = redis.call('XAUTOCLAIM', stream, group, consumer, min_idle, cursor, 'COUNT', most)
for _, entry in ipairs(scan[2]) do
  if entry then
    local pending = redis.call('XPENDING', stream, group, entry[1], entry[1], 1)[1]
    local row, why = claimed_row(1, stream, places, progress, group, version, entry[1], entry[2], pending[4])
    if row then
      local owner, shard = owners[entry[1]], as_map(entry[2])['shard']
      if owner and row[5] ~= '' then row[5] = charge(progress, shard, owner.lease, owner.is_crash) end
      rows[#rows + 1] = row
    elseif why == 'newer' then
      too_new = too_new + 1
    end
  else
    has_deleted = true
  end
end
local deleted = (has_deleted or scan[3]) and forget_deleted(scan) or 0
return {too_new, rows, deleted, scan[1]}
