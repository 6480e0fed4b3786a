#!lua flags=allow-oom
-- Keeps the end of one part of a job, for whoever holds the job's claim.
--
-- KEYS[1]  the job, a hash
-- KEYS[2]  its bytes, a hash by name
-- KEYS[3]  its parts that have ended, a hash by index
-- KEYS[4]  bytes of each job, a sorted set
-- KEYS[5]  totals, a hash: `bytes`
-- ARGV[1]  the job's id
-- ARGV[2]  token of the claim
-- ARGV[3]  index of the part
-- ARGV[4]  the part, JSON
-- ARGV[5]  name of its bytes, or empty
-- ARGV[6]  its bytes
-- ARGV[7]  channel
-- Returns 1: kept, or kept before. 0: the claim is no longer the token's, and nothing was done.
-- Invariant: a part ends once; its bytes are counted once.
if redis.call("HGET", KEYS[1], "t") ~= ARGV[2] or ARGV[2] == "" then return 0 end
if redis.call("HSETNX", KEYS[3], ARGV[3], ARGV[4]) == 0 then return 1 end
if ARGV[5] ~= "" then
  redis.call("HSET", KEYS[2], ARGV[5], ARGV[6])
  redis.call("ZINCRBY", KEYS[4], #ARGV[6], ARGV[1])
  redis.call("HINCRBY", KEYS[5], "bytes", #ARGV[6])
end
for i = 2, 3 do redis.call("PEXPIRE", KEYS[i], redis.call("PTTL", KEYS[1])) end
redis.call("PUBLISH", ARGV[7], ARGV[1])
return 1
