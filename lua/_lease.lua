-- The pending list is the lease table. A lease is held while the entry's consumer and delivery count are the claimer's.
-- A missing group means that nothing is held; it is caught here, not raised.
local function lease_is_held(stream, group, consumer, entry, count)
  local pending = redis.pcall('XPENDING', stream, group, entry, entry, 1)
  if pending.err or not pending[1] then return false end
  return pending[1][2] == consumer and pending[1][4] == tonumber(count)
end

-- Nobody else ever has a lease of this name.
local function lease_name(consumer, count)
  return consumer .. ' ' .. count
end

-- Begins a new lease for the same owner. It adds nothing, so it is allowed when Redis is full; and once a script has written
-- something, the rest of it is allowed as well. Who settles, and so makes room, begins with this.
local function renew_lease(stream, group, consumer, entry)
  redis.call('XCLAIM', stream, group, consumer, 0, entry, 'JUSTID')
end
