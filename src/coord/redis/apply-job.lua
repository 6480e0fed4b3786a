#!lua flags=allow-oom
-- Writes a changed job over the version that it was made from, with all that follows from the change.
--
-- KEYS[1]  the job: a hash of `v` (version), `r` (record, JSON), `t` (token of its claim, or empty)
-- KEYS[2]  the job's bytes, a hash by name
-- KEYS[3]  the job's parts that have ended, a hash by index
-- KEYS[4]  bytes of each job, a sorted set
-- KEYS[5]  totals, a hash: `bytes`
-- KEYS[6…] sorted sets that index jobs
-- ARGV[1]  the job's id
-- ARGV[2]  the version that the change was made from
-- ARGV[3]  its new version
-- ARGV[4]  its new record; empty: the job is forgotten
-- ARGV[5]  the token of its claim, or empty
-- ARGV[6]  ms for which the job's own keys are kept, should nobody look after them any more
-- ARGV[7]  ms for the indexes
-- ARGV[8]  name of bytes to keep, or empty
-- ARGV[9]  these bytes
-- ARGV[10] channel on which the change is told, or empty
-- ARGV[11…] for each of KEYS[6…]: the score, or empty to remove the job there
-- Returns 1: written. 0: the job is no longer of that version, or is gone, and nothing was done.
-- Invariant: the record, its version and its indexes change together, or not at all.
if redis.call("HGET", KEYS[1], "v") ~= ARGV[2] then return 0 end
local id = ARGV[1]
for i = 6, #KEYS do
  local score = ARGV[5 + i]
  if score == "" then
    redis.call("ZREM", KEYS[i], id)
  else
    redis.call("ZADD", KEYS[i], score, id)
    redis.call("PEXPIRE", KEYS[i], ARGV[7])
  end
end
if ARGV[4] == "" then
  local bytes = redis.call("ZSCORE", KEYS[4], id)
  if bytes then redis.call("HINCRBY", KEYS[5], "bytes", -tonumber(bytes)) end
  redis.call("ZREM", KEYS[4], id)
  redis.call("UNLINK", KEYS[1], KEYS[2], KEYS[3])
else
  redis.call("HSET", KEYS[1], "v", ARGV[3], "r", ARGV[4], "t", ARGV[5])
  if ARGV[8] ~= "" then
    redis.call("HSET", KEYS[2], ARGV[8], ARGV[9])
    redis.call("ZINCRBY", KEYS[4], #ARGV[9], id)
    redis.call("HINCRBY", KEYS[5], "bytes", #ARGV[9])
  end
  for i = 1, 3 do redis.call("PEXPIRE", KEYS[i], ARGV[6]) end
end
if ARGV[10] ~= "" then redis.call("PUBLISH", ARGV[10], id) end
return 1
