-- KEYS: claims that end together. ARGV: the channel, and for each key the claim as it was written, the value in its
-- place, how long that is kept. Says of each what became of it. Short, and without the common part: every operation
-- comes through here. No key is in the way of another: what goes wrong with one is its own answer.
local call, said = redis.pcall, {}
for n = 1, #KEYS do
  local key, claimed, put, kept = KEYS[n], ARGV[3 * n - 1], ARGV[3 * n], ARGV[3 * n + 1]
  local v = call('GET', key)
  if v == claimed then
    said[n] = call('SET', key, put, 'PX', kept)
  elseif type(v) == 'table' then
    said[n] = v
  elseif v and string.byte(v) == 17 and string.sub(v, 2) == string.sub(claimed, 2) then
    -- What is recorded comes first: others may always look.
    said[n] = call('SET', key, put, 'PX', kept)
    if not said[n].err then
      local told = call('PUBLISH', ARGV[1], string.sub(key, -32))
      if type(told) == 'table' then said[n] = told end
    end
  else
    local time, expires = call('TIME'), call('PEXPIRETIME', key)
    if time.err then
      said[n] = time
    elseif type(expires) == 'table' then
      said[n] = expires
    else
      said[n] = {0, time[1] * 1000 + math.floor(time[2] / 1000), expires, v}
    end
  end
end
return said
