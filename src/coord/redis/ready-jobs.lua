#!lua flags=no-writes
-- KEYS     sorted sets of jobs that can be claimed, by their place
-- ARGV[i]  jobs at most from KEYS[i]; below 0: so many of its last, the last one first
-- Returns {number of the key, id, place, …} in turn, all texts.
-- Invariant: changes nothing.
local found = {}
for i = 1, #KEYS do
  local most = tonumber(ARGV[i])
  local ids
  if most < 0 then
    ids = redis.call("ZRANGE", KEYS[i], 0, -most - 1, "REV", "WITHSCORES")
  else
    ids = redis.call("ZRANGE", KEYS[i], 0, most - 1, "WITHSCORES")
  end
  for k = 1, #ids, 2 do
    found[#found + 1] = tostring(i)
    found[#found + 1] = ids[k]
    found[#found + 1] = ids[k + 1]
  end
end
return found
