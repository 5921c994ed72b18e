-- Adds to a counter. One that holds no number, whoever wrote it, begins anew: no counter can stop a shard from being settled.
local function add(counters, field, change)
  local result = redis.pcall('HINCRBY', counters, field, change)
  if type(result) == 'table' and result.err then
    redis.call('HSET', counters, field, change)
    return change
  end
  return result
end
