#!lua
-- Keeps an answer, and ends the claim that it was made under.
--
-- KEYS[1]  the answer; see reply-begin.lua
-- KEYS[2]  the lane's claim
-- KEYS[3]  use: sorted set, name of an answer -> when it was last used
-- KEYS[4]  sizes: hash, name of an answer -> its bytes; the empty name -> bytes of all
-- ARGV[1]  owner of the claim; empty: keep without one
-- ARGV[2]  fingerprint
-- ARGV[3]  head
-- ARGV[4]  body
-- ARGV[5]  time to live in ms
-- ARGV[6]  bytes that the answer counts
-- ARGV[7]  bytes of all answers at most
-- ARGV[8]  name of the answer in KEYS[3] and KEYS[4]
-- ARGV[9]  what a name follows to be an answer's key, in the slot of the KEYS
-- ARGV[10] the channel on which those who wait are told
-- ARGV[11] the lane's name there
-- Returns {"kept" | "tooLarge" | "lost", answers, bytes of all, evicted}.
-- Invariants: the bytes of all answers never exceed ARGV[7], the least recently used leaving first. A claim that is not the
--   owner's is left alone, and so is its answer. Every key has a TTL.
local EVICTED_MAX = 4000
local LOOKED_AT = 16

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local name, bytes, bytesMax, ttl = ARGV[8], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[5])

local waits = false
if ARGV[1] ~= "" then
  local claim = redis.call("HMGET", KEYS[2], "o", "w")
  if claim[1] ~= ARGV[1] then return {"lost", 0, 0, 0} end
  waits = claim[2] == "1"
end

local total = tonumber(redis.call("HGET", KEYS[4], "") or "0")
local function forget(other, withKey)
  total = total - tonumber(redis.call("HGET", KEYS[4], other) or "0")
  redis.call("ZREM", KEYS[3], other)
  redis.call("HDEL", KEYS[4], other)
  if withKey then redis.call("DEL", ARGV[9] .. other) end
end

local result, evicted = "tooLarge", 0
if bytes <= bytesMax then
  forget(name, true)
  -- Answers whose time has passed are gone by themselves; of these a few are taken off the books at each turn.
  for _, other in ipairs(redis.call("ZRANGE", KEYS[3], 0, LOOKED_AT - 1)) do
    if redis.call("EXISTS", ARGV[9] .. other) == 0 then forget(other, false) end
  end
  while total + bytes > bytesMax and evicted < EVICTED_MAX do
    local oldest = redis.call("ZRANGE", KEYS[3], 0, 0)[1]
    if not oldest then total = 0 break end
    forget(oldest, true)
    evicted = evicted + 1
  end
  if total + bytes <= bytesMax then
    result = "kept"
    redis.call("HSET", KEYS[1], "f", ARGV[2], "h", ARGV[3], "b", ARGV[4], "t", string.format("%.0f", now))
    redis.call("PEXPIRE", KEYS[1], ttl)
    redis.call("ZADD", KEYS[3], now, name)
    redis.call("HSET", KEYS[4], name, bytes)
    total = total + bytes
  end
  redis.call("HSET", KEYS[4], "", string.format("%.0f", total))
  for key = 3, 4 do
    if redis.call("PTTL", KEYS[key]) < ttl then redis.call("PEXPIRE", KEYS[key], ttl) end
  end
end

if ARGV[1] ~= "" then redis.call("DEL", KEYS[2]) end
if waits then redis.call("PUBLISH", ARGV[10], (result == "kept" and "kept " or "dropped ") .. ARGV[11]) end
return {result, redis.call("ZCARD", KEYS[3]), total, evicted}
