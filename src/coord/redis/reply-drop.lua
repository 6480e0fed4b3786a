#!lua flags=allow-oom
-- Ends a claim with no answer.
--
-- KEYS[1]  the lane's claim; see reply-begin.lua
-- ARGV[1]  its owner
-- ARGV[2]  the channel on which those who wait are told
-- ARGV[3]  the lane's name there
-- Returns 1, or 0 when the claim is not the owner's.
-- Invariant: a claim of somebody else is left alone. Gives back only, so it is allowed when the memory is full.
local claim = redis.call("HMGET", KEYS[1], "o", "w")
if claim[1] ~= ARGV[1] then return 0 end
redis.call("DEL", KEYS[1])
if claim[2] == "1" then redis.call("PUBLISH", ARGV[2], "dropped " .. ARGV[3]) end
return 1
