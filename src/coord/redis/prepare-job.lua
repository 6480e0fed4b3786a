#!lua
-- What must be known before a job is accepted, and a number for it.
--
-- KEYS[1]  the store's epoch, a string
-- KEYS[2]  the job that the idempotency key names, a string; any unused key where there is none
-- KEYS[3]  fronts of the classes, a sorted set
-- KEYS[4]  the keys' last places in this class, a sorted set
-- KEYS[5]  counter of jobs
-- KEYS[6]  totals, a hash: `accepted`
-- ARGV[1]  epoch to give a store that has none
-- ARGV[2]  the class
-- ARGV[3]  the API key's id
-- ARGV[4]  ms for which these keys are kept
-- Returns {server time in ms, epoch, id that the key names or "", front or "", last place or "", number, accepted}, all texts.
-- Invariant: an epoch, once given, stays until the store is emptied.
local time = redis.call("TIME")
redis.call("SET", KEYS[1], ARGV[1], "NX")
local number = redis.call("INCR", KEYS[5])
redis.call("PEXPIRE", KEYS[1], ARGV[4])
redis.call("PEXPIRE", KEYS[5], ARGV[4])
return {
  string.format("%.0f", time[1] * 1000 + math.floor(time[2] / 1000)),
  redis.call("GET", KEYS[1]),
  redis.call("GET", KEYS[2]) or "",
  redis.call("ZSCORE", KEYS[3], ARGV[2]) or "",
  redis.call("ZSCORE", KEYS[4], ARGV[3]) or "",
  tostring(number),
  redis.call("HGET", KEYS[6], "accepted") or "0",
}
