#!lua
-- Reads texts as of one moment.
--
-- KEYS[1…]  the texts
-- ARGV      none
-- Returns {now in ms of this server's clock, as text, text or false, …}.
local time = redis.call("TIME")
local said = { string.format("%.0f", time[1] * 1000 + math.floor(time[2] / 1000)) }
for i, key in ipairs(KEYS) do said[i + 1] = redis.call("GET", key) end
return said
