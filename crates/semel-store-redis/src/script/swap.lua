-- ARGV: the head as seen or '', PEXPIRETIME as seen, the new value or '', its PEXPIRETIME, whether to
-- tell in any case, the channel.
local v, t, expires = call('GETRANGE', key, 0, 164), now(), call('PEXPIRETIME', key)
local seen, put = tonumber(ARGV[2]), ARGV[3]
if sub(v, 2) ~= ARGV[1] or expires ~= seen then
  -- A copy of this very call may have come first. Two outcomes may have one head.
  local whole = call('GET', key)
  if whole and put ~= '' and sub(whole, 2) == sub(put, 2) and expires == tonumber(ARGV[4]) then
    return t
  end
  return {0, t, expires, whole}
end
if put == '' then
  call('DEL', key)
elseif ARGV[4] == '-1' then
  call('SET', key, put)
else
  call('SET', key, put, 'PXAT', ARGV[4])
end
if ARGV[5] == '1' then
  tell(ARGV[6])
elseif v ~= '' then
  tell_if_waited(v, ARGV[6])
end
return t
