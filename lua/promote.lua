--[[
  promote: put delayed shards whose time has come back onto the stream. Works when Redis is full, too: only what runs can
  make room.

  KEYS[1]  shards stream
  KEYS[2]  places hash
  KEYS[3]  progress hash
  KEYS[4]  delayed sorted set
  KEYS[5]  counters hash
  ARGV[1]  most shards to promote
  ARGV[2]  control channel
  ARGV[3]  newest version the caller understands
  Returns  how many went back onto the stream
]]
--@include _now
--@include _place
--@include _progress
--@include _run

local stream, places, progress_key, delayed, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local was_empty = redis.call('XLEN', stream) == 0
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', as_text(now_us() / 1000), 'LIMIT', 0, ARGV[1])
local promoted = 0
if #due > 0 then redis.call('ZREM', delayed, '') end -- frees nothing, but a script that has begun to write may go on
for _, shard in ipairs(due) do
  local progress = load_progress(progress_key, shard)
  if progress and redis.call('HGET', places, shard) == DELAYED then
    local entry = redis.call('XADD', stream, '*', 'v', progress.v, 'shard', shard, 'job', progress.job, 'run', progress.run)
    redis.call('HSET', places, shard, on_stream(entry))
    promoted = promoted + 1
  end
  local is_left = not progress and is_of_newer_version(progress_key, shard, ARGV[3])
  if not is_left then redis.call('ZREM', delayed, shard) end
end
if promoted > 0 then
  if was_empty then has_moved(counters) end
  redis.call('PUBLISH', ARGV[2], 'work')
end
return promoted
