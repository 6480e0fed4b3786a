#!lua
-- Appends a run's events to the shared audit, or says that the run is alive, or ends it.
--
-- KEYS[1]  events: stream, id <sequence number>-0, field r a JSON row
-- KEYS[2]  runs: hash, run -> "<last ordinal>|<last sequence number>|<began>"; the empty name -> the last number given
-- KEYS[3]  alive: sorted set, run -> when it was last heard of, ms of this server's clock
-- KEYS[4]  gaps: sorted set, "<after number>|<missing>|<noted>" scored by the first
-- ARGV[1]  run
-- ARGV[2]  ordinal of the first event, from 1: its place among all events of the run, lost ones too
-- ARGV[3]  events of the stream at most, about
-- ARGV[4]  "1": the run ends here, and the ordinals before the first are all there are
-- ARGV[5…] rows
-- Returns the last sequence number.
-- Invariants: events that were appended before are not appended again. Ordinals that a run skips become numbers that no event
--   has, and a gap. All four are bounded: by ARGV[3], and the lists of runs and gaps by a number.
local RUNS_MAX = 1000
local GAPS_MAX = 1000

local time = redis.call("TIME")
local now = string.format("%.0f", time[1] * 1000 + math.floor(time[2] / 1000))
local run, first = ARGV[1], tonumber(ARGV[2])

-- The stream is asked too: it may outlive the other keys.
local newest = redis.call("XREVRANGE", KEYS[1], "+", "-", "COUNT", 1)[1]
local seq = tonumber(redis.call("HGET", KEYS[2], "") or "0")
if newest then seq = math.max(seq, tonumber(string.match(newest[1], "^%d+"))) end

local done, began = 0, now
local known = redis.call("HGET", KEYS[2], run)
if known then
  local ordinal, _, at = string.match(known, "^(%d+)|(%d+)|(%d+)$")
  done, began = tonumber(ordinal), at
end

local last = first + #ARGV - 5
if last <= done and ARGV[4] ~= "1" then
  redis.call("ZADD", KEYS[3], now, run)
  return seq
end

local missing = first - 1 - done
if missing > 0 then
  redis.call("ZADD", KEYS[4], seq, string.format("%.0f|%.0f|%s", seq, missing, now))
  seq = seq + missing
end
for i = 5, #ARGV do
  seq = seq + 1
  redis.call("XADD", KEYS[1], string.format("%.0f-0", seq), "r", ARGV[i])
end
if #ARGV >= 5 then redis.call("XTRIM", KEYS[1], "MAXLEN", "~", ARGV[3]) end

redis.call("HSET", KEYS[2], "", string.format("%.0f", seq))
if ARGV[4] == "1" then
  redis.call("HDEL", KEYS[2], run)
  redis.call("ZREM", KEYS[3], run)
else
  redis.call("HSET", KEYS[2], run, string.format("%.0f|%.0f|%s", last, seq, began))
  redis.call("ZADD", KEYS[3], now, run)
end
while redis.call("ZCARD", KEYS[3]) > RUNS_MAX do
  local oldest = redis.call("ZPOPMIN", KEYS[3])[1]
  redis.call("HDEL", KEYS[2], oldest)
end
local oldest = redis.call("XRANGE", KEYS[1], "-", "+", "COUNT", 1)[1]
if oldest then
  local from = tonumber(string.match(oldest[1], "^%d+"))
  -- A gap that ends before the oldest event is as far away as the events that were trimmed.
  while true do
    local gap = redis.call("ZRANGE", KEYS[4], 0, 0)[1]
    if not gap then break end
    local after, count = string.match(gap, "^(%d+)|(%d+)|")
    if tonumber(after) + tonumber(count) >= from - 1 then break end
    redis.call("ZREM", KEYS[4], gap)
  end
end
redis.call("ZREMRANGEBYRANK", KEYS[4], 0, -GAPS_MAX - 1)
return seq
