-- KEYS[1]: the index of stuck keys. ARGV: when this one became so, the key.
return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
