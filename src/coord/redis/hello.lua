#!lua flags=allow-oom
-- A gateway says that it is there, and hears how old the store is and how many others are there.
--
-- KEYS[1]  "nonce|time it was made": absent when the store has been emptied
-- KEYS[2]  sorted set: gateway -> time in ms at which it is taken to be gone
-- ARGV[1]  the gateway
-- ARGV[2]  what the nonce becomes if there is none
-- ARGV[3]  how long the gateway is taken to be there, in ms; 0 when it leaves
-- ARGV[4]  how long the nonce is kept, in ms
-- Returns {nonce, age of the store in ms as text, gateways that are there}.
-- Invariant: both keys have a TTL.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call("GET", KEYS[1])
if not stored then
  stored = ARGV[2] .. "|" .. string.format("%.0f", now)
  redis.call("SET", KEYS[1], stored)
end
redis.call("PEXPIRE", KEYS[1], ARGV[4])
local nonce, made = string.match(stored, "^(.*)|(%d+)$")

redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", now)
local ttl = tonumber(ARGV[3])
if ttl > 0 then
  redis.call("ZADD", KEYS[2], now + ttl, ARGV[1])
  redis.call("PEXPIRE", KEYS[2], 10 * ttl)
else
  redis.call("ZREM", KEYS[2], ARGV[1])
end
return {nonce, string.format("%.0f", now - made), redis.call("ZCARD", KEYS[2])}
