-- ARGV: the claim as it was written, the value in its place, how long that is kept, the channel.
-- Short, and without the common part: every operation comes through here.
local key, call, sub = KEYS[1], redis.call, string.sub
local v = call('GET', key)
if v == ARGV[1] then return call('SET', key, ARGV[2], 'PX', ARGV[3]) end
if v and string.byte(v) == 17 and sub(v, 2) == sub(ARGV[1], 2) then
  -- What is recorded comes first: others may always look.
  local done = call('SET', key, ARGV[2], 'PX', ARGV[3])
  call('PUBLISH', ARGV[4], sub(key, -32))
  return done
end
local time = call('TIME')
return {0, time[1] * 1000 + math.floor(time[2] / 1000), call('PEXPIRETIME', key), v}
