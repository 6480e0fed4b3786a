#!lua
-- Reads the open texts of a kind.
--
-- KEYS[1]  their index, a sorted set of names by the time at which each was opened
-- ARGV[1]  what stands before a name in the text's key; all have the index's hash tag
-- ARGV[2]  how many at most
-- Returns {name, text, …}, the oldest first.
local said = {}
for _, name in ipairs(redis.call("ZRANGE", KEYS[1], 0, tonumber(ARGV[2]) - 1)) do
  local text = redis.call("GET", ARGV[1] .. name)
  if text then
    said[#said + 1] = name
    said[#said + 1] = text
  end
end
return said
