#!lua
-- Does what the other scripts do, on a key of its own, so that whatever would refuse them refuses this: a user without the
-- right, a replica, a full memory, a server that loads, a node that does not hold the key.
--
-- KEYS[1]  <prefix>:probe, a sorted set that is gone a second later
-- ARGV[1]  a name for the member
-- Returns the server's time in ms, as text.
-- Invariant: leaves nothing behind.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("ZADD", KEYS[1], now, ARGV[1])
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
redis.call("PEXPIRE", KEYS[1], 1000)
return string.format("%.0f", now)
