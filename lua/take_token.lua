--[[
  take_token: reserve the next free slot of a budget (GCRA). Every caller gets a slot of its own, sleeps once and goes:
  first come, first served, no polling, and never more than the limit in any window.

  KEYS[1]  budget hash
  ARGV[1]  microseconds between two grants
  Returns  {slot in microseconds since the epoch, as text; microseconds to wait for it}
]]
--@include _now

local budget, spacing = KEYS[1], tonumber(ARGV[1])
local stored = redis.call('HMGET', budget, 'last', 'hold')
local now = now_us()
-- Counted from the last slot given, not from now: otherwise all that queue up during a hold would go at its end. The slot
-- is kept and not the time after it, so that a changed limit holds from the next call on.
local slot = math.max(now, (tonumber(stored[1]) or -spacing) + spacing, tonumber(stored[2]) or 0)
redis.call('HSET', budget, 'last', as_text(slot))
return {as_text(slot), slot - now}
