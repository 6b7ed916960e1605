-- ARGV: the head as seen, the value of a grant or '', its horizon, the claim's nonce.
local v, t, expires = call('GET', key), now(), call('PEXPIRETIME', key)
if not v or sub(v, 2, 165) ~= ARGV[1] or (expires >= 0 and expires <= t) then
  return look(t, expires)
end
local granted = ARGV[2]
if byte(v, 3) == 2 then
  -- Without its TTL nobody can tell whether the lease is over.
  if expires < 0 then return look(t, expires) end
  local armed = expires - horizon(v)
  if sub(v, 70, 85) == ARGV[4] then
    if is_abandoned(v) then return look(t, expires) end
    arm(v, armed)
    return t
  end
  if armed + number(v, 118) > t then
    if byte(v, 1) == 16 then call('SETRANGE', key, 0, '\17') end
    return {2, t, expires}
  end
  if granted ~= '' then
    -- Whoever waited for the lost owner waits for the new one.
    local _, created = origin(v, armed)
    granted = sub(v, 1, 1) .. sub(granted, 2, 141) .. bytes(created) .. sub(granted, 150)
  end
end
if granted == '' then return look(t, expires) end
call('SET', key, granted, 'PX', ARGV[3])
return t
