--[[
  take_token: reserve the next free slot of a budget (GCRA). Every caller gets a slot of its own, sleeps once and goes:
  first come, first served, no polling, and never more than the limit in any window.

  KEYS[1]  budget hash
  ARGV[1]  microseconds between two grants
  Returns  {slot in microseconds since the epoch, as text; microseconds to wait for it}
]]
--@include _now

local budget, spacing = KEYS[1], tonumber(ARGV[1])
local stored = redis.call('HMGET', budget, 'next', 'hold')
local now = now_us()
-- The next slot is counted from this slot, not from now: otherwise all that queue up during a hold would go at its end.
local slot = math.max(now, tonumber(stored[1]) or 0, tonumber(stored[2]) or 0)
redis.call('HSET', budget, 'next', as_text(slot + spacing))
return {as_text(slot), slot - now}
