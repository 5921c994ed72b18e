--[[
  put: set fields of a hash, also when Redis is full: what a fleet is steered by must always get through.

  KEYS[1]  hash
  ARGV[1…] pairs of field and value
  Returns  how many fields there are now
]]
local hash = KEYS[1]
for i = 1, #ARGV, 2 do
  redis.call('HDEL', hash, ARGV[i]) -- a script that frees first is not refused by a full Redis
  redis.call('HSET', hash, ARGV[i], ARGV[i + 1])
end
return redis.call('HLEN', hash)
