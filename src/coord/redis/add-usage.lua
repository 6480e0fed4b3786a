#!lua
-- Adds what a gateway says was used, once for each of its numbers. coord/local/usage-tables.ts does the same to tables: the two change
-- together, and one suite of tests runs against both.
--
-- KEYS[1]  the highest number that the gateway told under
-- KEYS[2…] per row: keys of its day, a sorted set (all scores 0); sums of its key and day, a hash: "<counter> <model>" -> sum,
--          "= <model>" for each model, "#" how many there are; and the same hash of those that are kept together
-- ARGV[1]  the request, JSON: seq, toldMs, keysMax, modelsMax, others (the name of those that are kept together),
--          rows of {key, model, until (ms since 1970 at which its day is forgotten), counts: [counter, amount, counter, …]}
-- Returns "done".
-- Invariants: what is told under a number is added once. Every key has a TTL. No day has more keys, and no hash more models, than the
--   limits and one.
local ask = cjson.decode(ARGV[1])
local function text(number) return string.format("%.0f", number) end
if tonumber(redis.call("GET", KEYS[1]) or "0") >= ask.seq then return "done" end
redis.call("SET", KEYS[1], text(ask.seq), "PX", text(ask.toldMs))

for i, row in ipairs(ask.rows) do
  local index, sums, together = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  local key, model = row.key, row.model
  if not redis.call("ZSCORE", index, key) and redis.call("ZCARD", index) >= ask.keysMax then
    key, sums = ask.others, together
  end
  redis.call("ZADD", index, 0, key)
  if redis.call("HEXISTS", sums, "= " .. model) == 0 and tonumber(redis.call("HGET", sums, "#") or "0") >= ask.modelsMax then
    model = ask.others
  end
  if redis.call("HSETNX", sums, "= " .. model, "1") == 1 then redis.call("HINCRBY", sums, "#", 1) end
  for j = 1, #row.counts, 2 do
    redis.call("HINCRBY", sums, row.counts[j] .. " " .. model, text(row.counts[j + 1]))
  end
  redis.call("PEXPIREAT", index, text(row["until"]))
  redis.call("PEXPIREAT", sums, text(row["until"]))
end
return "done"
