-- ARGV: nonce and token, the packed outcome, its flags, where its retention stands, the channel.
local v, t, expires = call('GET', key), now(), call('PEXPIRETIME', key)
if not v or not readable(v) or sub(v, 70, 93) ~= ARGV[1] or bit.band(byte(v, 5), 16) == 0
  or (expires >= 0 and expires <= t) then
  return look(t, expires)
end
local state = byte(v, 3)
if state == 3 then return {1, t} end
if state ~= 2 and state ~= 4 and state ~= 5 then return look(t, expires) end
local claimed, created, lease_until = number(v, 102), number(v, 142), number(v, 110)
if state == 2 then
  local armed = expires - horizon(v)
  claimed, created = origin(v, armed)
  lease_until = armed + number(v, 118)
end
local kept_until = t + number(v, tonumber(ARGV[4]))
local flags = string.char(tonumber(ARGV[3]), bit.bor(byte(v, 5), 96))
call('SET', key, table.concat({
  '\16\1\3', flags, sub(v, 6, 101), bytes(claimed), bytes(lease_until), sub(v, 118, 141),
  bytes(created), bytes(t), bytes(kept_until), sub(v, 166), ARGV[2]
}), 'PXAT', string.format('%.0f', kept_until))
tell_if_waited(v, ARGV[5])
return {1, t}
