#!lua
-- Makes a document, changes it over the version that the change was made from, or forgets it with its pieces.
--
-- KEYS[1]  the document, a hash: `t` (text), `v` (version), `s` (number), `k` (API key's id), `d` (kind)
-- KEYS[2]  its pieces, a hash by name
-- KEYS[3]  bytes of each document's pieces, a sorted set
-- KEYS[4]  API key's id of each document, a hash
-- KEYS[5]  totals, a hash: `bytes`, and `b:ID` for each API key
-- KEYS[6]  counter of documents
-- KEYS[7]  documents of this kind that are shown, a sorted set by number
-- KEYS[8]  those of the API key
-- KEYS[9]  open documents, a sorted set by number
-- KEYS[10] those of the API key
-- KEYS[11] documents by the time of their end, a sorted set
-- ARGV[1]  the document's id
-- ARGV[2]  the version that it has now; 0: it is made; "gone": its own keys have gone by themselves
-- ARGV[3]  its text; empty: it is forgotten
-- ARGV[4]  the API key's id
-- ARGV[5]  its kind
-- ARGV[6]  "1": shown
-- ARGV[7]  "1": open
-- ARGV[8]  when it ends, server time in ms
-- ARGV[9]  ms for which its keys are kept beyond that, should nobody look after them any more
-- ARGV[10] ms for the indexes
-- ARGV[11] documents at most
-- ARGV[12] open documents of one API key at most
-- Returns "ok", also where a document of this id was made before, or why nothing was done: "changed", "docs", "open".
-- Invariant: a document, its indexes and what is counted of it change together, or not at all.
local id = ARGV[1]
local version = redis.call("HGET", KEYS[1], "v")
local number
if ARGV[2] == "0" then
  if version then return "ok" end
  if redis.call("HLEN", KEYS[4]) >= tonumber(ARGV[11]) then return "docs" end
  if ARGV[7] == "1" and redis.call("ZCARD", KEYS[10]) >= tonumber(ARGV[12]) then return "open" end
  number = redis.call("INCR", KEYS[6])
  redis.call("HSET", KEYS[1], "s", number, "k", ARGV[4], "d", ARGV[5])
  redis.call("HSET", KEYS[4], id, ARGV[4])
  version = "0"
elseif ARGV[2] == "gone" then
  if version then return "changed" end
else
  if version ~= ARGV[2] then return "changed" end
  number = redis.call("HGET", KEYS[1], "s")
end
local function keep(key, wanted, score)
  if wanted then redis.call("ZADD", key, score, id) else redis.call("ZREM", key, id) end
end
local stays = ARGV[3] ~= ""
keep(KEYS[7], stays and ARGV[6] == "1", number)
keep(KEYS[8], stays and ARGV[6] == "1", number)
keep(KEYS[9], stays and ARGV[7] == "1", number)
keep(KEYS[10], stays and ARGV[7] == "1", number)
keep(KEYS[11], stays, ARGV[8])
if stays then
  redis.call("HSET", KEYS[1], "t", ARGV[3], "v", tonumber(version) + 1)
  local last = string.format("%.0f", tonumber(ARGV[8]) + tonumber(ARGV[9]))
  redis.call("PEXPIREAT", KEYS[1], last)
  redis.call("PEXPIREAT", KEYS[2], last)
else
  local bytes = tonumber(redis.call("ZSCORE", KEYS[3], id) or "0")
  if bytes > 0 then
    redis.call("HINCRBY", KEYS[5], "bytes", -bytes)
    if redis.call("HINCRBY", KEYS[5], "b:" .. ARGV[4], -bytes) <= 0 then
      redis.call("HDEL", KEYS[5], "b:" .. ARGV[4])
    end
  end
  redis.call("ZREM", KEYS[3], id)
  redis.call("HDEL", KEYS[4], id)
  redis.call("UNLINK", KEYS[1], KEYS[2])
end
for i = 3, 11 do redis.call("PEXPIRE", KEYS[i], ARGV[10]) end
return "ok"
