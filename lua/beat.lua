--[[
  beat: say that a worker is alive, at the server's time. Also when Redis is full: who cannot say so would be taken for dead.

  KEYS[1]  workers hash
  ARGV[1]  consumer
  ARGV[2]  what it says of itself, a JSON object
  Returns  the server's time in milliseconds
]]
--@include _now

local workers = KEYS[1]
local seen = as_text(math.floor(now_us() / 1000))
redis.call('HDEL', workers, ARGV[1]) -- a script that frees first is not refused by a full Redis
redis.call('HSET', workers, ARGV[1], string.sub(ARGV[2], 1, -2) .. ',"seen_ms":' .. seen .. '}')
return seen
