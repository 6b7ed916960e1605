-- Positions in a value (counted from one): 1 waited, 2 version, 3 state, 4-5 flags (32 in progress: contested),
-- 6-37 key hash,
-- 70-85 nonce, 86-93 token, 102 claimed at, 110 lease until, 118 lease, 126 retention,
-- 134 failure retention, 142 created at, 150 completed at, 158 expires at, 166 labels and outcome.
local call, sub, byte = redis.call, string.sub, string.byte
local key = KEYS[1]

local function now()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function number(v, at)
  return (struct.unpack('>I8', v, at))
end

local function bytes(n)
  return struct.pack('>I8', n)
end

-- How the key stands: {0, store time, PEXPIRETIME, value}.
local function look(t, expires)
  return {0, t, expires, call('GET', key)}
end

-- True for a value that these scripts may take apart.
local function readable(v)
  return #v >= 165 and sub(v, 2, 2) == '\1' and sub(v, 6, 37) == sub(key, -32)
end

local function is_hold(v)
  return bit.band(byte(v, 5), 4) ~= 0
end

local function is_abandoned(v)
  return bit.band(byte(v, 5), 2) ~= 0
end

-- The TTL that a claim or renewal sets.
local function horizon(v)
  if is_hold(v) then return 315360000000 end
  return number(v, 118) + number(v, 126)
end

-- When the owner was granted the key, and when the record was made.
local function origin(v, armed)
  local claimed, created = number(v, 102), number(v, 142)
  if claimed == 0 then claimed = armed end
  if created == 0 then created = claimed end
  return claimed, created
end

-- Starts the lease again, and ends a contest. The times that the TTL showed so far are written first.
local function arm(v, armed)
  local claimed, created = origin(v, armed)
  local flags = byte(v, 5)
  if bit.band(flags, 32) ~= 0 then call('SETRANGE', key, 4, string.char(flags - 32)) end
  if number(v, 102) == 0 then call('SETRANGE', key, 101, bytes(claimed)) end
  if number(v, 142) == 0 then call('SETRANGE', key, 141, bytes(created)) end
  call('PEXPIRE', key, string.format('%.0f', horizon(v)))
end

local function tell(channel)
  call('PUBLISH', channel, sub(key, -32))
end

local function tell_if_waited(v, channel)
  if bit.band(byte(v, 1), 1) == 1 then tell(channel) end
end
