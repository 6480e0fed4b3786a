#!lua flags=no-writes
-- Reads a part of the shared audit, and what is known of it as a whole.
--
-- KEYS[1…4] as in audit-append.lua
-- ARGV[1]  "up": oldest first, from ARGV[2] on; "down": newest first, from ARGV[2] down
-- ARGV[2]  an id of the stream, or "+"
-- ARGV[3]  events at most
-- Returns {now, last sequence number, {id, row, …}, {gap, …}, {run, "<ordinal>|<number>|<began>", last heard of, …}}.
-- Invariant: changes nothing.
local time = redis.call("TIME")
local now = string.format("%.0f", time[1] * 1000 + math.floor(time[2] / 1000))
local entries
if ARGV[1] == "up" then
  entries = redis.call("XRANGE", KEYS[1], ARGV[2], "+", "COUNT", ARGV[3])
else
  entries = redis.call("XREVRANGE", KEYS[1], ARGV[2], "-", "COUNT", ARGV[3])
end
local rows = {}
for i, entry in ipairs(entries) do
  rows[2 * i - 1] = string.match(entry[1], "^%d+")
  rows[2 * i] = entry[2][2]
end
local runs = {}
for i, run in ipairs(redis.call("ZRANGE", KEYS[3], 0, -1)) do
  runs[3 * i - 2] = run
  runs[3 * i - 1] = redis.call("HGET", KEYS[2], run) or ""
  runs[3 * i] = redis.call("ZSCORE", KEYS[3], run)
end
return {now, redis.call("HGET", KEYS[2], "") or "0", rows, redis.call("ZRANGE", KEYS[4], 0, -1), runs}
