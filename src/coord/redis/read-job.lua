#!lua flags=no-writes
-- KEYS[1]  the job, a hash
-- KEYS[2]  its parts that have ended, a hash by index
-- KEYS[3]  the store's epoch, a string
-- ARGV     none
-- Returns {server time in ms, record or "", how many parts have ended, epoch or ""}, all texts.
-- Invariant: changes nothing.
local time = redis.call("TIME")
return {
  string.format("%.0f", time[1] * 1000 + math.floor(time[2] / 1000)),
  redis.call("HGET", KEYS[1], "r") or "",
  tostring(redis.call("HLEN", KEYS[2])),
  redis.call("GET", KEYS[3]) or "",
}
