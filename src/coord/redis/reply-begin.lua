#!lua
-- Finds a kept answer, or takes the claim to make it.
--
-- KEYS[1]  the answer: hash, f fingerprint, h head, b body, t when it was kept in ms of this server's clock
-- KEYS[2]  the lane's claim: hash, o owner, f fingerprint, w "1" when somebody waits for its end
-- KEYS[3]  use: sorted set, name of an answer -> when it was last used
-- ARGV[1]  the owner that takes the claim; empty: only look
-- ARGV[2]  fingerprint of the request
-- ARGV[3]  lease in ms
-- ARGV[4]  do nothing after this time of the server's clock in ms; 0: whenever
-- ARGV[5]  name of the answer in KEYS[3]
-- Returns {"late" | "mismatch" | "running" | "taken" | "none", now} or {"found", now, age, head, body}; times as text.
-- Invariants: a live claim has one owner, and asking again with the same one changes nothing. Every key has a TTL.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format("%.0f", number) end
local notAfter = tonumber(ARGV[4])
if notAfter > 0 and now > notAfter then return {"late", text(now)} end

local answer = redis.call("HMGET", KEYS[1], "f", "t", "h", "b")
if answer[1] then
  if answer[1] ~= ARGV[2] then return {"mismatch", text(now)} end
  redis.call("ZADD", KEYS[3], "XX", now, ARGV[5])
  return {"found", text(now), text(now - tonumber(answer[2])), answer[3], answer[4]}
end
if ARGV[1] == "" then return {"none", text(now)} end

local claim = redis.call("HMGET", KEYS[2], "o", "f")
if claim[1] and claim[2] ~= ARGV[2] then return {"mismatch", text(now)} end
if claim[1] and claim[1] ~= ARGV[1] then
  redis.call("HSET", KEYS[2], "w", "1")
  return {"running", text(now)}
end
redis.call("HSET", KEYS[2], "o", ARGV[1], "f", ARGV[2])
redis.call("PEXPIRE", KEYS[2], ARGV[3])
return {"taken", text(now)}
