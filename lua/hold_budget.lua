--[[
  hold_budget: grant nothing for a while. A longer hold that is already there stays; slots that were reserved inside the
  hold are void, and their owners are told through the control channel.

  KEYS[1]  budget hash
  ARGV[1]  microseconds to hold
  ARGV[2]  control channel
  ARGV[3]  message for the control channel
  Returns  1 held, 0 a longer hold was there already
]]
--@include _now

local budget = KEYS[1]
local until_us = now_us() + tonumber(ARGV[1])
if (tonumber(redis.call('HGET', budget, 'hold')) or 0) >= until_us then return 0 end
redis.call('HDEL', budget, 'hold') -- a script that frees first is not refused by a full Redis
redis.call('HSET', budget, 'hold', as_text(until_us))
redis.call('PUBLISH', ARGV[2], ARGV[3])
return 1
