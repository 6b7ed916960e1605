-- KEYS[1]: a copy. ARGV: its value, its PEXPIRETIME, the latest time at which it may be put.
-- Late, it could bring back what was removed: the mark of that is gone by then.
local time = redis.call('TIME')
if time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[3]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PXAT', ARGV[2])
return 1
