#!lua
-- All that happens to the slots of one upstream, in one step. The model of it, in TypeScript, is in coord/local/: the two
-- change together, and one suite of tests runs against both.
--
-- KEYS[1]  all leases: sorted set, lease id -> time of expiry in ms of this server's clock
-- KEYS[2]  those of them that are batch
-- KEYS[3]  who waits: hash, gateway -> JSON {e: expiry, r: per rank {n: how many, h: since when, f: one of
--          them goes first, t: endpoint tokens}}
-- KEYS[4]  "nonce|time it was made|expiry of the last lease, or 0": absent when the store has been emptied
-- KEYS[5]  gateways that have told what runs: sorted set, gateway -> when it is taken to be gone
-- KEYS[6…] per endpoint of the request, in its order: sorted set like KEYS[1]
-- ARGV[1]  the request, JSON; decide/coordination/slot-request.ts describes its members
-- ARGV[2]  the channel on which gateways are told that a slot is free for them
-- Returns {"late", now}, {"reset", now, boot}, or {"done", now, boot, age, in use, batch in use, {per endpoint in use},
--   {granted id, endpoint, …}, {lost ids}, {crowded per rank}, {gateways waiting per rank}, gateways here}; times as text.
-- Invariants: no want is granted at or above `slots`, batch at or above `batchMax`, or an endpoint at or above its own;
--   nor a slot that a higher class, or an older waiter of the class, at another gateway could take now. Every key has a TTL.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format("%.0f", number) end
local ask = cjson.decode(ARGV[1])
if ask.notAfter > 0 and now > ask.notAfter then return {"late", text(now)} end

local ALL, BATCH, WAIT, BOOT, HERE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FIRST = 5
local endpoints = #KEYS - FIRST
local boot, created, last
local stored = redis.call("GET", BOOT)
if stored then
  boot, created, last = string.match(stored, "^(.*)|(%d+)|(%d+)$")
  -- A server that evicts may throw away the leases and keep this: as bad as an emptied one.
  if tonumber(last) > now and redis.call("EXISTS", ALL) == 0 then stored = false end
end
if stored then
  if boot ~= ask.boot and ask.boot ~= "" and not ask.reassert then return {"reset", text(now), boot} end
else
  if ask.boot ~= "" and not ask.reassert then return {"reset", text(now), ""} end
  boot, created = ask.nonce, ask.settled and "0" or text(now)
end
-- Every gateway says now and then that it is here, and what it holds: often enough for what is to be kept alive. Where somebody
-- always waits, there is no request that asks for nothing.
local renews = ask.renews or #ask.wants == 0

-- The dead leave by themselves. A lease of batch stands in both sets with one time, unless one of the sets was evicted.
local lapsed = redis.call("ZREMRANGEBYSCORE", ALL, "-inf", now)
if lapsed > 0 or renews then redis.call("ZREMRANGEBYSCORE", BATCH, "-inf", now) end
for at = 1, endpoints do redis.call("ZREMRANGEBYSCORE", KEYS[FIRST + at], "-inf", now) end
for _, lease in ipairs(ask.release) do
  redis.call("ZREM", ALL, lease[1])
  redis.call("ZREM", BATCH, lease[1])
  for at = 2, #lease do redis.call("ZREM", KEYS[FIRST + 1 + lease[at]], lease[1]) end
end

local expiry = now + ask.ttlMs
if renews then
  redis.call("ZREMRANGEBYSCORE", HERE, "-inf", now)
  redis.call("ZADD", HERE, expiry, ask.gateway)
end
local used, batchUsed, usedAt = redis.call("ZCARD", ALL), redis.call("ZCARD", BATCH), {}
for at = 1, endpoints do usedAt[at] = redis.call("ZCARD", KEYS[FIRST + at]) end
-- A key that begins to be gets its time to live with its first member; the others when something is renewed.
local began = {all = used == 0, batch = batchUsed == 0}
for at = 1, endpoints do began[at] = usedAt[at] == 0 end
local function put(id, batch, at)
  local new = redis.call("ZADD", ALL, expiry, id) == 1
  if new then used = used + 1 end
  if batch then
    if redis.call("ZADD", BATCH, expiry, id) == 1 then batchUsed = batchUsed + 1 end
  elseif not new and batchUsed > 0 and redis.call("ZREM", BATCH, id) == 1 then
    batchUsed = batchUsed - 1
  end
  if redis.call("ZADD", KEYS[FIRST + at], expiry, id) == 1 then usedAt[at] = usedAt[at] + 1 end
end

local lost = {}
for _, lease in ipairs(ask.renew) do
  local id, batch, at, from = lease[1], lease[2] == 1, lease[3] + 1, lease[4] + 1
  if from > 0 and redis.call("ZREM", KEYS[FIRST + from], id) == 1 then usedAt[from] = usedAt[from] - 1 end
  local here = ask.reassert or redis.call("ZSCORE", ALL, id)
  if here or (used < ask.slots and (not batch or batchUsed < ask.batchMax) and usedAt[at] < ask.endpoints[at].slots) then
    put(id, batch, at)
  else
    lost[#lost + 1] = id
  end
end

-- Who else waits.
local others, known = {}, false
local entries = redis.call("HGETALL", WAIT)
for i = 1, #entries, 2 do
  if entries[i] ~= ask.gateway then
    local entry = cjson.decode(entries[i + 1])
    if entry.e > now then
      others[#others + 1] = {gateway = entries[i], ranks = entry.r}
    else
      redis.call("HDEL", WAIT, entries[i])
    end
  else
    known = true
  end
end
table.sort(others, function(a, b) return a.gateway < b.gateway end)

local placeOf = {}
for at = 1, endpoints do placeOf[ask.endpoints[at].token] = at end
-- How many of those who could go to these endpoints could go now; one not named in the request has room for anyone.
local function roomOn(tokens, without)
  local room = 0
  for _, token in ipairs(tokens) do
    local at = placeOf[token]
    if not at then return math.huge end
    if at ~= without then room = room + math.max(0, ask.endpoints[at].slots - usedAt[at]) end
  end
  return room
end
local function goesTo(tokens, at)
  for _, token in ipairs(tokens) do
    if placeOf[token] == at then return true end
  end
  return false
end
-- Those at other gateways who go before a waiter of this rank who has waited since `since`: higher classes, older ones of
-- the same, and one of any class whose share is due.
local function ahead(rank, since, goesFirst)
  local list = {}
  for _, other in ipairs(others) do
    for above = 0, 2 do
      local class = other.ranks[above + 1]
      local older = class.h < since or (class.h == since and other.gateway < ask.gateway)
      local n = 0
      if class.n > 0 then
        if (above < rank and not goesFirst) or (above == rank and older) then n = class.n
        elseif class.f and (not goesFirst or older) then n = 1 end
      end
      if n > 0 then list[#list + 1] = {n = n, t = class.t, batch = above == 2} end
    end
  end
  return list
end

local granted, grantedOf = {}, {0, 0, 0}
for _, want in ipairs(ask.wants) do
  local id, rank, goesFirst = want[1], want[2], want[3] == 1
  local since = now - ask.waiting[rank + 1].ageMs
  local before = ahead(rank, since, goesFirst)
  local free, batchFree = ask.slots - used, ask.batchMax - batchUsed
  for _, other in ipairs(before) do
    local taken = math.min(other.n, roomOn(other.t))
    free = free - taken
    if other.batch then batchFree = batchFree - taken end
  end
  if free > 0 and (rank < 2 or batchFree > 0) then
    for i = 4, #want do
      local at = want[i] + 1
      local freeAt = ask.endpoints[at].slots - usedAt[at]
      for _, other in ipairs(before) do
        if freeAt > 0 and goesTo(other.t, at) then freeAt = freeAt - math.max(0, other.n - roomOn(other.t, at)) end
      end
      if freeAt > 0 then
        put(id, rank == 2, at)
        granted[#granted + 1] = id
        granted[#granted + 1] = at - 1
        grantedOf[rank + 1] = grantedOf[rank + 1] + 1
        break
      end
    end
  end
end

-- Who waits here.
local mine, waits = {}, false
for rank = 1, 3 do
  local class = ask.waiting[rank]
  local tokens = {}
  for i, at in ipairs(class.endpoints) do tokens[i] = ask.endpoints[at + 1].token end
  local count = math.max(0, class.count - grantedOf[rank])
  mine[rank] = {n = count, h = now - class.ageMs, f = class.goesFirst and count > 0, t = tokens}
  if count > 0 then waits = true end
end
if waits then
  redis.call("HSET", WAIT, ask.gateway, cjson.encode({e = now + ask.waitingTtlMs, r = mine}))
elseif known then
  redis.call("HDEL", WAIT, ask.gateway)
end

-- Whose turn it is elsewhere, if anything is free: those whose share is due, then by class, then by age.
local free = ask.slots - used
if free > 0 and #others > 0 then
  local turns = {}
  for _, other in ipairs(others) do
    for rank = 1, 3 do
      local class = other.ranks[rank]
      if class.n > 0 and roomOn(class.t) > 0 and (rank < 3 or batchUsed < ask.batchMax) then
        turns[#turns + 1] = {rank = rank, h = class.h, n = class.n, gateway = other.gateway}
        if class.f then turns[#turns + 1] = {rank = 0, h = class.h, n = 1, gateway = other.gateway} end
      end
    end
  end
  table.sort(turns, function(a, b)
    if a.rank ~= b.rank then return a.rank < b.rank end
    if a.h ~= b.h then return a.h < b.h end
    return a.gateway < b.gateway
  end)
  local told, names = {}, {}
  for _, turn in ipairs(turns) do
    if free <= 0 then break end
    if not told[turn.gateway] then
      told[turn.gateway] = true
      names[#names + 1] = turn.gateway
    end
    free = free - turn.n
  end
  if #names > 0 then redis.call("PUBLISH", ARGV[2], table.concat(names, ",")) end
end

local newest = redis.call("ZREVRANGE", ALL, 0, 0, "WITHSCORES")[2]
redis.call("SET", BOOT, boot .. "|" .. created .. "|" .. (newest and text(tonumber(newest)) or "0"), "PX", ask.bootTtlMs)

-- Longer than any lease, whoever gave it: gateways may differ in `ttlMs` for a while.
local keyTtl = ask.keyTtlMs
if renews then redis.call("PEXPIRE", HERE, keyTtl) end
if (renews or began.all) and used > 0 then redis.call("PEXPIRE", ALL, keyTtl) end
if (renews or began.batch) and batchUsed > 0 then redis.call("PEXPIRE", BATCH, keyTtl) end
for at = 1, endpoints do
  if (renews or began[at]) and usedAt[at] > 0 then redis.call("PEXPIRE", KEYS[FIRST + at], keyTtl) end
end
if waits then redis.call("PEXPIRE", WAIT, 4 * ask.waitingTtlMs) end

local crowded, gateways = {0, 0, 0}, {0, 0, 0}
for rank = 1, 3 do
  if mine[rank].n > 0 then gateways[rank] = 1 end
  for _, other in ipairs(others) do
    if other.ranks[rank].n > 0 then
      gateways[rank] = gateways[rank] + 1
      for below = rank + 1, 3 do crowded[below] = 1 end
    end
  end
end
return {"done", text(now), boot, text(now - created), used, batchUsed, usedAt, granted, lost, crowded, gateways,
  redis.call("ZCARD", HERE)}
