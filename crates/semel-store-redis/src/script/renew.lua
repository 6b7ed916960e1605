-- ARGV: nonce and token, max_run.
local v, t, expires = call('GETRANGE', key, 0, 164), now(), call('PEXPIRETIME', key)
if not readable(v) or byte(v, 3) ~= 2 or sub(v, 70, 93) ~= ARGV[1] or is_abandoned(v)
  or expires <= t then
  return look(t, expires)
end
local armed = expires - horizon(v)
if t - origin(v, armed) >= tonumber(ARGV[2]) then return look(t, expires) end
arm(v, armed)
return {1, t}
