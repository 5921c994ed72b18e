--[[
  purge: throw dead letters away, and the places of their shards with them. The counters stay: what failed has failed, and
  the ledger keeps it. Frees only, so it works when Redis is full.

  KEYS[1]  places hash
  KEYS[2]  dead stream
  ARGV[1…] dead entries
  Returns  for each 1 purged, 0 it was gone (nothing written)
]]
--@include _letter

local places, dead = KEYS[1], KEYS[2]
local results = {}
for i = 1, #ARGV do
  results[i] = remove_letter(dead, places, ARGV[i]) and 1 or 0
end
return results
