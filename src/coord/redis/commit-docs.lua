#!lua
-- Writes texts together, over what they were made from, or not at all.
--
-- KEYS[1…]  n texts that are looked at; then for each of m writes: the text, and the index of its kind's open ones, a sorted set
-- ARGV[1]   server time in ms after which nothing is done: whoever asked waits no longer
-- ARGV[2]   n
-- ARGV[3]   m
-- ARGV[4]   how many of a kind may be open
-- ARGV[5]   ms for which closed ones are kept
-- ARGV[6…]  n texts that are expected, each with "=" before it, or "" for none; then for each write: its name, its text, "1" if it is open
-- Returns "done", "late", "changed" or "full".
-- Invariant: all or nothing.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if now > tonumber(ARGV[1]) then return "late" end
local n = tonumber(ARGV[2])
local m = tonumber(ARGV[3])
for i = 1, n do
  local text = redis.call("GET", KEYS[i])
  if (text and "=" .. text or "") ~= ARGV[5 + i] then return "changed" end
end
for i = 1, m do
  local at = 5 + n + 3 * (i - 1)
  local index = KEYS[n + 2 * i]
  if ARGV[at + 3] == "1" and not redis.call("ZSCORE", index, ARGV[at + 1]) and redis.call("ZCARD", index) >= tonumber(ARGV[4]) then
    return "full"
  end
end
for i = 1, m do
  local at = 5 + n + 3 * (i - 1)
  local text, index = KEYS[n + 2 * i - 1], KEYS[n + 2 * i]
  if ARGV[at + 3] == "1" then
    redis.call("SET", text, ARGV[at + 2])
    redis.call("ZADD", index, "NX", now, ARGV[at + 1])
  else
    redis.call("SET", text, ARGV[at + 2], "PX", ARGV[5])
    redis.call("ZREM", index, ARGV[at + 1])
  end
end
return "done"
