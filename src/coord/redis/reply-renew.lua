#!lua flags=allow-oom
-- Renews claims.
--
-- KEYS     the claims; see reply-begin.lua
-- ARGV[1]  lease in ms
-- ARGV[2…] their owners, in the order of the KEYS
-- Returns for each 1, or 0 when the claim is not its owner's.
-- Invariant: a claim that has ended is not brought back.
local kept = {}
for i, key in ipairs(KEYS) do
  kept[i] = 0
  if redis.call("HGET", key, "o") == ARGV[i + 1] then
    redis.call("PEXPIRE", key, ARGV[1])
    kept[i] = 1
  end
end
return kept
