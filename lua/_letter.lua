-- Letters on the dead stream.
--@include _place

-- Whether the place is a letter of another round than this one: a replay opened the round in the ledger, and came no further.
local function is_of_another_round(dead, place, job)
  if not was_dead(place) then return false end
  local entry = string.sub(place, 2)
  local found = redis.pcall('XRANGE', dead, entry, entry)[1]
  local fields = found and found[2] or {}
  for i = 1, #fields, 2 do
    if fields[i] == 'job' then return fields[i + 1] ~= job end
  end
  return false
end

-- Takes a letter off the stream, and with it the place of its shard when that is this letter: a shard that was replayed
-- meanwhile is elsewhere, and stays there. Frees only, so it works when Redis is full. Returns whether the letter was there.
local function remove_letter(dead, places, letter)
  local found = redis.call('XRANGE', dead, letter, letter)[1]
  if not found then return false end
  local fields = found[2]
  for i = 1, #fields, 2 do
    if fields[i] == 'shard' and redis.call('HGET', places, fields[i + 1]) == among_dead(letter) then
      redis.call('HDEL', places, fields[i + 1])
    end
  end
  redis.call('XDEL', dead, letter)
  return true
end
