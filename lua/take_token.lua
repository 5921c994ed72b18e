--[[
  take_token: reserve the next free slot of a budget (GCRA). Every caller gets a slot of its own, sleeps once and goes:
  first come, first served, no polling, and never more than the limit in any window.

  KEYS[1]  budget hash
  ARGV[1]  microseconds between two grants
  Returns  {slot in microseconds since the epoch, as text; microseconds to wait for it}
]]
--@include _now

local YEAR_US = 366 * 86400 * 1000000
local budget, spacing = KEYS[1], tonumber(ARGV[1])
local stored = redis.call('HMGET', budget, 'last', 'hold')
local now = now_us()

-- A time that somebody else wrote there must not stop the fleet for ever.
local function believable(text)
  local time = text and tonumber(text)
  return time and time == time and time < now + YEAR_US and time or nil
end

-- Counted from the last slot given, not from now: otherwise all that queue up during a hold would go at its end. The slot
-- is kept and not the time after it, so that a changed limit holds from the next call on.
local slot = math.max(now, (believable(stored[1]) or -spacing) + spacing, believable(stored[2]) or 0)
redis.call('HDEL', budget, 'last') -- a script that frees first is not refused by a full Redis
redis.call('HSET', budget, 'last', as_text(slot))
return {as_text(slot), slot - now}
