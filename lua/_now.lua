-- Time is the server's: worker clocks decide nothing.

-- Microseconds since the epoch; exact in a double until the year 2255.
local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The same as text without an exponent (tostring would lose digits).
local function as_text(us)
  return string.format('%.0f', us)
end

-- ISO 8601 in UTC; Redis' Lua has no os.date.
local function iso(us)
  local seconds = math.floor(us / 1000000)
  local days = math.floor(seconds / 86400)
  local rest = seconds - days * 86400
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02dZ', year, month, day,
    math.floor(rest / 3600), math.floor(rest / 60) % 60, rest % 60)
end
