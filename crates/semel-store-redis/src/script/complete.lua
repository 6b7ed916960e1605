-- ARGV: nonce and token, the packed outcome, its flags, 1 for a success, the channel.
-- Flat, and without the common part: every operation comes through here.
local key, call, sub, byte = KEYS[1], redis.call, string.sub, string.byte
local v, expires, time = call('GET', key), call('PEXPIRETIME', key), call('TIME')
local t = time[1] * 1000 + math.floor(time[2] / 1000)
local state = v and #v >= 165 and byte(v, 3)
if not state or state < 2 or state > 5 or byte(v, 2) ~= 1 or sub(v, 70, 93) ~= ARGV[1]
  or sub(v, 6, 37) ~= sub(key, -32) or bit.band(byte(v, 5), 16) == 0
  or (expires >= 0 and expires <= t) then
  return {0, t, expires, v}
end
if state == 3 then return t end
local claimed, lease_until, lease, kept, failed, created = struct.unpack('>I8I8I8I8I8I8', v, 102)
if state == 2 then
  local horizon = lease + kept
  if bit.band(byte(v, 5), 4) ~= 0 then horizon = 315360000000 end
  local armed = expires - horizon
  if claimed == 0 then claimed = armed end
  if created == 0 then created = claimed end
  lease_until = armed + lease
end
if ARGV[4] ~= '1' then kept = failed end
local flags = string.char(ARGV[3], bit.bor(byte(v, 5), 96))
call('SET', key, '\16\1\3' .. flags .. sub(v, 6, 101) .. struct.pack('>I8I8', claimed, lease_until)
  .. sub(v, 118, 141) .. struct.pack('>I8I8I8', created, t, t + kept) .. sub(v, 166) .. ARGV[2],
  'PXAT', string.format('%.0f', t + kept))
if byte(v, 1) == 17 then call('PUBLISH', ARGV[5], sub(key, -32)) end
return t
