#!lua flags=no-writes
-- KEYS     sorted sets of jobs that can be claimed, by their place
-- ARGV[i]  jobs at most from KEYS[i]
-- Returns {number of the key, id, place, …} in turn, all texts.
-- Invariant: changes nothing.
local found = {}
for i = 1, #KEYS do
  local ids = redis.call("ZRANGE", KEYS[i], 0, tonumber(ARGV[i]) - 1, "WITHSCORES")
  for k = 1, #ids, 2 do
    found[#found + 1] = tostring(i)
    found[#found + 1] = ids[k]
    found[#found + 1] = ids[k + 1]
  end
end
return found
