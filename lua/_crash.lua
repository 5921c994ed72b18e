-- Who is charged with a crash: a shard that had been started, under the very lease that ran out, when that worker's
-- heartbeat is gone as well although the server was there all the time. A worker that lives has merely lost this lease.
--@include _now
--@include _progress

-- A worker beats several times a lease; half of one without a beat is long.
local function is_gone(workers, owner, lease_ms)
  local beat = redis.call('HGET', workers, owner)
  if not beat then return true end
  local ok, said = pcall(cjson.decode, beat)
  local seen = ok and type(said) == 'table' and tonumber(said.seen_ms)
  return not seen or now_us() / 1000 - seen > lease_ms / 2
end

-- Returns the shard's progress as it is stored now. Whoever started it does not have it any more.
local function charge(progress_key, shard, lease, is_crash)
  local progress = load_progress(progress_key, shard)
  if not progress or progress.started == nil then return redis.call('HGET', progress_key, shard) or '' end
  if is_crash and progress.started == lease then progress.crashes = progress.crashes + 1 end
  progress.started = nil
  save_progress(progress_key, shard, progress)
  return redis.call('HGET', progress_key, shard)
end
