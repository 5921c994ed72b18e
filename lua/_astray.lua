-- A place as we write them can still be that of another shard's entry: then the shard is not there.
--@include _claimed
--@include _place

local function is_of_another(place, shard, stream, dead)
  if not string.find(place, '^[sx]%d+%-%d+$') then return false end
  local entry = string.sub(place, 2)
  local found = redis.call('XRANGE', was_dead(place) and dead or stream, entry, entry)[1]
  return found and as_map(found[2])['shard'] ~= shard
end
