import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAuditQuery } from "./audit-route.ts";

const NOW = 1_767_225_600_000;

const good: { params: string; query: object }[] = [
  { params: "", query: { limit: 100 } },
  { params: "since=1h&limit=5", query: { limit: 5, sinceMs: NOW - 3_600_000 } },
  { params: "since=7d&until=30s", query: { limit: 100, sinceMs: NOW - 7 * 86_400_000, untilMs: NOW - 30_000 } },
  { params: "since=2026-01-01T00:00:00Z", query: { limit: 100, sinceMs: NOW } },
  { params: "since=2026-01-01T02:00%2B02:00", query: { limit: 100, sinceMs: NOW } },
  {
    params: "key_id=team-a&model=a%20b&upstream=chat&outcome=ok&request_id=r1&after_seq=0",
    query: { limit: 100, keyId: "team-a", model: "a b", upstream: "chat", outcome: "ok", requestId: "r1", afterSeq: 0 },
  },
  { params: "limit=10000", query: { limit: 10_000 } },
];
for (const { params, query } of good) {
  test(`the audit reads ?${params}`, () =>
    assert.deepEqual(parseAuditQuery(new URLSearchParams(params), NOW), { kind: "ok", query }));
}

for (const params of [
  "limit=0",
  "limit=10001",
  "limit=-1",
  "limit=1.5",
  "limit=1e3",
  "limit=",
  "limit=5&limit=5",
  "since=yesterday",
  "since=1",
  "since=-1h",
  "since=2026-01-01",
  "since=2026-01-01T00:00:00",
  "since=2026-13-01T00:00:00Z",
  "until=1x",
  "after_seq=-1",
  "after_seq=99999999999999999",
  "key_id=",
  "key=team-a",
  `model=${"x".repeat(513)}`,
  "nope=1",
  "constructor=1",
  "Limit=1",
]) {
  test(`the audit refuses ?${params.slice(0, 40)}`, () =>
    assert.equal(parseAuditQuery(new URLSearchParams(params), NOW).kind, "bad"));
}
