#!lua
-- Accepts a job: its record, bytes, indexes and idempotency key in one step. Refused by the server as a whole when its memory
-- is full, since it has not the flag that would let it write then.
--
-- KEYS[1]  the job, a hash
-- KEYS[2]  its bytes, a hash by name
-- KEYS[3]  bytes of each job, a sorted set
-- KEYS[4]  totals, a hash: `bytes`, and `accepted`, how many jobs there ever were
-- KEYS[5]  the store's epoch, a string
-- KEYS[6]  the job that the idempotency key names, a string
-- KEYS[7]  all jobs, a sorted set
-- KEYS[8]  the keys' last places in this class, a sorted set
-- KEYS[9…] sorted sets that index jobs
-- ARGV[1]  the job's id
-- ARGV[2]  its record
-- ARGV[3]  server time in ms after which nothing is done: whoever asked waits no longer
-- ARGV[4]  epoch that the job belongs to
-- ARGV[5]  what KEYS[6] must hold, or empty for nothing
-- ARGV[6]  "1" where the job has an idempotency key
-- ARGV[7]  jobs at most
-- ARGV[8]  bytes at most
-- ARGV[9]  ms for which the job's own keys are kept
-- ARGV[10] ms for the indexes
-- ARGV[11] the API key's id
-- ARGV[12] the job's place
-- ARGV[13] channel
-- ARGV[14] how many of KEYS[9…] there are, n; then n scores; then names and bytes in turn
-- Returns {"ok", accepted, as text}, or why nothing was done: "late", "epoch", "taken", "jobs", "bytes".
-- Invariant: all or nothing; neither the number of jobs nor their bytes exceed what was given.
local time = redis.call("TIME")
if time[1] * 1000 + math.floor(time[2] / 1000) > tonumber(ARGV[3]) then return "late" end
if redis.call("GET", KEYS[5]) ~= ARGV[4] then return "epoch" end
if ARGV[6] == "1" and (redis.call("GET", KEYS[6]) or "") ~= ARGV[5] then return "taken" end
if redis.call("ZCARD", KEYS[7]) >= tonumber(ARGV[7]) then return "jobs" end
local indexes = tonumber(ARGV[14])
local bytes = 0
for i = 15 + indexes, #ARGV, 2 do bytes = bytes + #ARGV[i + 1] end
if tonumber(redis.call("HGET", KEYS[4], "bytes") or "0") + bytes > tonumber(ARGV[8]) then return "bytes" end
local id = ARGV[1]
redis.call("HSET", KEYS[1], "v", "1", "r", ARGV[2], "t", "")
redis.call("PEXPIRE", KEYS[1], ARGV[9])
for i = 15 + indexes, #ARGV, 2 do redis.call("HSET", KEYS[2], ARGV[i], ARGV[i + 1]) end
redis.call("PEXPIRE", KEYS[2], ARGV[9])
redis.call("ZADD", KEYS[3], bytes, id)
redis.call("PEXPIRE", KEYS[3], ARGV[10])
redis.call("HINCRBY", KEYS[4], "bytes", bytes)
local accepted = redis.call("HINCRBY", KEYS[4], "accepted", 1)
redis.call("PEXPIRE", KEYS[4], ARGV[10])
if ARGV[6] == "1" then redis.call("SET", KEYS[6], id, "PX", ARGV[9]) end
redis.call("ZADD", KEYS[8], ARGV[12], ARGV[11])
redis.call("PEXPIRE", KEYS[8], ARGV[10])
for i = 1, indexes do
  redis.call("ZADD", KEYS[8 + i], ARGV[14 + i], id)
  redis.call("PEXPIRE", KEYS[8 + i], ARGV[10])
end
redis.call("PUBLISH", ARGV[13], id)
return { "ok", tostring(accepted) }
