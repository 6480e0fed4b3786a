#!lua flags=allow-oom
-- KEYS[1]  the store's epoch, a string
-- KEYS[2]  totals, a hash: `accepted`
-- KEYS[3…] sorted sets of jobs by the time at which they are due
-- ARGV[1]  epoch to give a store that has none
-- ARGV[2]  ms for which it is kept
-- ARGV[3]  jobs at most from each set
-- Returns {server time in ms, epoch, accepted, ids…}, all texts.
-- Invariant: changes nothing but a missing epoch.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])
local found = { string.format("%.0f", now), redis.call("GET", KEYS[1]), redis.call("HGET", KEYS[2], "accepted") or "0" }
for i = 3, #KEYS do
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", KEYS[i], "-inf", now, "LIMIT", 0, ARGV[3])) do
    found[#found + 1] = id
  end
end
return found
