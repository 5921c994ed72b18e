--[[
  restore: write the dead letters of failed shards again, after Redis lost them. A shard that has a place is left where it is.
  Nothing is counted: the counters come from the ledger.

  KEYS[1]  places hash
  KEYS[2]  dead stream
  ARGV[1]  most letters to keep
  ARGV[2]  number of arguments that make a letter
  ARGV[3…] for each shard: its key, then pairs of field and value that go into the letter as they are
  Returns  for each 1 restored, 0 it has a place, or there are enough letters
]]
--@include _place

local places, dead = KEYS[1], KEYS[2]
local most, size = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('HDEL', places, '') -- a script that frees first is not refused by a full Redis
local results = {}
for i = 3, #ARGV, size + 1 do
  local shard = ARGV[i]
  local is_missing = redis.call('HEXISTS', places, shard) == 0 and redis.call('XLEN', dead) < most
  if is_missing then
    local letter = redis.call('XADD', dead, '*', 'shard', shard, unpack(ARGV, i + 1, i + size))
    redis.call('HSET', places, shard, among_dead(letter))
  end
  results[#results + 1] = is_missing and 1 or 0
end
return results
