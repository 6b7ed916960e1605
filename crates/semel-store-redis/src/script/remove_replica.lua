-- KEYS[1]: a copy. ARGV: the mark, how long it stays, the channel. Says whether there was a copy.
local was = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[3], string.sub(KEYS[1], -32))
if was and was ~= ARGV[1] then return 1 end
return 0
