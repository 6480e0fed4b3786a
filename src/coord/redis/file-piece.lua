#!lua
-- Keeps a piece of a document's bytes, or drops pieces.
--
-- KEYS[1]  the document, a hash
-- KEYS[2]  its pieces, a hash by name
-- KEYS[3]  bytes of each document's pieces, a sorted set
-- KEYS[4]  totals, a hash: `bytes`, and `b:ID` for each API key
-- ARGV[1]  the document's id
-- ARGV[2]  bytes of all at most, or empty: without a bound
-- ARGV[3]  bytes of one API key at most
-- ARGV[4]  ms for which what is counted is kept
-- ARGV[5…] the name and the bytes to keep; or names to drop, with an empty text in the place of each one's bytes
-- Returns "kept", or why nothing was done: "unknown", "bytes".
-- Invariant: what is counted is what is kept.
local owner = redis.call("HGET", KEYS[1], "k")
if not owner then return "unknown" end
local more = 0
for i = 5, #ARGV, 2 do more = more + #ARGV[i + 1] - redis.call("HSTRLEN", KEYS[2], ARGV[i]) end
if ARGV[2] ~= "" and more > 0 then
  if tonumber(redis.call("HGET", KEYS[4], "bytes") or "0") + more > tonumber(ARGV[2]) then return "bytes" end
  if tonumber(redis.call("HGET", KEYS[4], "b:" .. owner) or "0") + more > tonumber(ARGV[3]) then return "bytes" end
end
for i = 5, #ARGV, 2 do
  if ARGV[i + 1] == "" then
    redis.call("HDEL", KEYS[2], ARGV[i])
  else
    redis.call("HSET", KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
redis.call("ZINCRBY", KEYS[3], more, ARGV[1])
redis.call("HINCRBY", KEYS[4], "bytes", more)
redis.call("HINCRBY", KEYS[4], "b:" .. owner, more)
redis.call("PEXPIRE", KEYS[2], redis.call("PTTL", KEYS[1]))
redis.call("PEXPIRE", KEYS[3], ARGV[4])
redis.call("PEXPIRE", KEYS[4], ARGV[4])
return "kept"
