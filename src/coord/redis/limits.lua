#!lua
-- All that is told and asked of some keys' limits, in one step. The model of it, in TypeScript, is decide/limits/key-account.ts: the
-- two change together, and one suite of tests runs against both.
--
-- KEYS[1]  the highest number that the gateway told under
-- KEYS[2…] per key of the request, in its order: its account, a hash: b name of this life, r<n> and t<n> requests and tokens of the n-th
--          five seconds since 1970, d m day and month, dt dc mc tokens and money of the day and money of the month; and what is in
--          flight, a sorted set: id -> expiry in ms of this server's clock
-- ARGV[1]  the request, JSON: notAfter, seq, ttlMs, nonce, keyTtlMs, seqTtlMs, entries of {boot, floors {day, dt, dc, month, mc},
--          pieces, days, months, release, renew, want: {id, limits (in flight, requests and tokens a minute, tokens and money a day,
--          money a month; -1 none), tokens, micros} or false}
-- Returns {"late", now}, or {"done", now, per key {life, "1" if granted, in flight, dt, dc, mc, n, requests, tokens, n, …}}.
-- Invariants: a request is counted only if it fits under every limit, and then under all at once. What is told under a number is done
--   once. Every key has a TTL.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format("%.0f", number) end
local ask = cjson.decode(ARGV[1])
if ask.notAfter > 0 and now > ask.notAfter then return {"late", text(now)} end
local PIECE_MS, PIECES, DAY_MS = 5000, 13, 86400000

local adjusts = false
if ask.seq > 0 then
  adjusts = tonumber(redis.call("GET", KEYS[1]) or "0") < ask.seq
  if adjusts then redis.call("SET", KEYS[1], text(ask.seq), "PX", ask.seqTtlMs) end
end

local current, today = math.floor(now / PIECE_MS), math.floor(now / DAY_MS)
-- The month of a day since 1970, in a calendar whose years begin in March.
local z = today + 719468
local era = math.floor(z / 146097)
local doe = z - era * 146097
local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
local march = math.floor((5 * (doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))) + 2) / 153)
local this_month = (era * 400 + yoe) * 12 + march + 2

local function step(entry, account_key, flying)
  local stored = redis.call("HGETALL", account_key)
  local account, requests, tokens, gone = {}, {}, {}, {}
  for i = 1, #stored, 2 do
    local name, value = stored[i], stored[i + 1]
    local kind, index = string.match(name, "^([rt])(%d+)$")
    if not kind then account[name] = value
    elseif tonumber(index) <= current - PIECES then gone[#gone + 1] = name
    elseif kind == "r" then requests[tonumber(index)] = tonumber(value)
    else tokens[tonumber(index)] = tonumber(value) end
  end
  if #gone > 0 then redis.call("HDEL", account_key, unpack(gone)) end
  local boot = account.b or ask.nonce
  local dt, dc, mc = tonumber(account.dt or 0), tonumber(account.dc or 0), tonumber(account.mc or 0)
  if tonumber(account.d or 0) ~= today then dt, dc = 0, 0 end
  if tonumber(account.m or 0) ~= this_month then mc = 0 end
  local floors = entry.floors
  if entry.boot ~= "" and entry.boot ~= boot then
    if floors.day == today then dt, dc = math.max(dt, floors.dt), math.max(dc, floors.dc) end
    if floors.month == this_month then mc = math.max(mc, floors.mc) end
  end

  local changed = {}
  local function add(index, r, t)
    requests[index] = math.max(0, (requests[index] or 0) + r)
    tokens[index] = math.max(0, (tokens[index] or 0) + t)
    changed[index] = true
  end
  if adjusts then
    for _, piece in ipairs(entry.pieces) do
      if piece[1] > current - PIECES and piece[1] < current + PIECES then add(piece[1], piece[2], piece[3]) end
    end
    for _, day in ipairs(entry.days) do
      if day[1] == today then dt, dc = math.max(0, dt + day[2]), math.max(0, dc + day[3]) end
    end
    for _, month in ipairs(entry.months) do
      if month[1] == this_month then mc = math.max(0, mc + month[2]) end
    end
  end

  redis.call("ZREMRANGEBYSCORE", flying, "-inf", now)
  for _, id in ipairs(entry.release) do redis.call("ZREM", flying, id) end
  for _, id in ipairs(entry.renew) do redis.call("ZADD", flying, now + ask.ttlMs, id) end
  local in_flight, granted, want = redis.call("ZCARD", flying), false, entry.want
  if want then
    local r, t = 0, 0
    for _, count in pairs(requests) do r = r + count end
    for _, count in pairs(tokens) do t = t + count end
    local l = want.limits
    local function fits(limit, used) return limit < 0 or used <= limit end
    granted = fits(l[1], in_flight + 1) and fits(l[2], r + 1) and fits(l[3], t + want.tokens)
      and fits(l[4], dt + want.tokens) and fits(l[5], dc + want.micros) and fits(l[6], mc + want.micros)
    if granted then
      add(current, 1, want.tokens)
      dt, dc, mc = dt + want.tokens, dc + want.micros, mc + want.micros
      in_flight = in_flight + redis.call("ZADD", flying, now + ask.ttlMs, want.id)
    end
  end

  local set = {"b", boot, "d", text(today), "m", text(this_month), "dt", text(dt), "dc", text(dc), "mc", text(mc)}
  for index in pairs(changed) do
    set[#set + 1] = "r" .. text(index)
    set[#set + 1] = text(requests[index])
    set[#set + 1] = "t" .. text(index)
    set[#set + 1] = text(tokens[index])
  end
  redis.call("HSET", account_key, unpack(set))
  redis.call("PEXPIRE", account_key, ask.keyTtlMs)
  if in_flight > 0 then redis.call("PEXPIRE", flying, 2 * ask.ttlMs) end

  local said = {boot, granted and "1" or "0", text(in_flight), text(dt), text(dc), text(mc)}
  for index = current - PIECES + 1, current + PIECES - 1 do
    if requests[index] or tokens[index] then
      said[#said + 1] = text(index)
      said[#said + 1] = text(requests[index] or 0)
      said[#said + 1] = text(tokens[index] or 0)
    end
  end
  return said
end

local keys = {}
for i, entry in ipairs(ask.entries) do keys[i] = step(entry, KEYS[2 * i], KEYS[2 * i + 1]) end
return {"done", text(now), keys}
