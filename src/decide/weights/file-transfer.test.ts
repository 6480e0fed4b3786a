import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { askFor, type HeadVerdict, judgeEnd, judgeHead, pauseMs, type Transfer } from "./file-transfer.ts";

const ETAG = '"v1"';
const SHA = "a".repeat(64);
const transfer = (over: Partial<Transfer> = {}): Transfer => ({
  want: { bytes: null, sha256: null },
  have: 0,
  etag: null,
  told: null,
  ...over,
});

test("what is there is gone on with only by a strong tag or a known digest [40.W1]", () => {
  assert.equal(askFor(transfer())?.["range"], undefined);
  assert.equal(askFor(transfer({ have: 5 }))?.["range"], undefined);
  assert.deepEqual(askFor(transfer({ have: 5, etag: ETAG })), {
    "accept-encoding": "identity",
    range: "bytes=5-",
    "if-range": ETAG,
  });
  const byDigest = askFor(transfer({ have: 5, want: { bytes: 9, sha256: SHA } }));
  assert.deepEqual([byDigest?.["range"], byDigest?.["if-range"]], ["bytes=5-", undefined]);
  assert.equal(askFor(transfer({ have: 9, etag: ETAG, want: { bytes: 9, sha256: null } })), null);
});

const half = transfer({ have: 5, etag: ETAG, want: { bytes: 10, sha256: null } });
const heads: readonly {
  readonly name: string;
  readonly from: Transfer;
  readonly status: number;
  readonly headers?: Record<string, string>;
  readonly expect: Partial<HeadVerdict>;
  readonly why?: RegExp;
}[] = [
  {
    name: "a whole file",
    from: transfer(),
    status: 200,
    headers: { "content-length": "10", etag: ETAG },
    expect: { kind: "take", from: 0, total: 10, etag: ETAG },
  },
  {
    name: "a weak tag",
    from: transfer(),
    status: 200,
    headers: { "content-length": "10", etag: `W/${ETAG}` },
    expect: { kind: "take", etag: null },
  },
  { name: "a file of no known length", from: transfer(), status: 200, expect: { kind: "refused" } },
  {
    name: "a file of no known length with a digest",
    from: transfer({ want: { bytes: null, sha256: SHA } }),
    status: 200,
    expect: { kind: "take", total: null },
  },
  ...[
    { what: "a web page", type: "text/html; charset=utf-8", length: "10", why: /a web page/ },
    { what: "a page of another kind", type: "Application/XHTML+xml", length: "10", why: /a web page/ },
    { what: "an empty file", type: "application/octet-stream", length: "0", why: /is empty/ },
  ].map(({ what, type, length, why }) => ({
    name: `${what} of which nothing else is known`,
    from: transfer(),
    status: 200,
    headers: { "content-length": length, "content-type": type },
    expect: { kind: "refused" as const },
    why,
  })),
  ...[
    { bytes: 0, sha256: null },
    { bytes: null, sha256: SHA },
  ].map((want) => ({
    name: `an empty page whose ${want.bytes === null ? "digest" : "length"} is known`,
    from: transfer({ want }),
    status: 200,
    headers: { "content-length": "0", "content-type": "text/html" },
    expect: { kind: "take" as const, total: 0 },
  })),
  {
    name: "a file of another length than was listed",
    from: transfer({ want: { bytes: 9, sha256: null } }),
    status: 200,
    headers: { "content-length": "10" },
    expect: { kind: "refused" },
  },
  {
    name: "the rest",
    from: half,
    status: 206,
    headers: { "content-range": "bytes 5-9/10", etag: ETAG },
    expect: { kind: "take", from: 5, end: 10, total: 10 },
  },
  {
    name: "a piece of the rest",
    from: half,
    status: 206,
    headers: { "content-range": "bytes 5-7/10", etag: ETAG },
    expect: { kind: "take", from: 5, end: 8, total: 10 },
  },
  {
    name: "a whole file in place of the rest, since it has changed",
    from: half,
    status: 200,
    headers: { "content-length": "10", etag: '"v2"' },
    expect: { kind: "take", from: 0, etag: '"v2"' },
  },
  {
    name: "the rest of another version",
    from: half,
    status: 206,
    headers: { "content-range": "bytes 5-9/10", etag: '"v2"' },
    expect: { kind: "anew" },
  },
  {
    name: "another part than was asked for",
    from: half,
    status: 206,
    headers: { "content-range": "bytes 0-9/10", etag: ETAG },
    expect: { kind: "anew" },
  },
  {
    name: "the rest of a longer file",
    from: half,
    status: 206,
    headers: { "content-range": "bytes 5-11/12", etag: ETAG },
    expect: { kind: "anew" },
  },
  ...[
    ["a longer file under the same tag", "bytes 5-11/12", 10],
    ["a shorter file under the same tag", "bytes 5-7/8", 10],
    ["a part that begins before the one asked for", "bytes 4-9/10", 10],
    ["a part that begins behind the one asked for", "bytes 6-9/10", 10],
    ["a part that ends behind the file", "bytes 5-10/10", 10],
    ["a part of a file of no known length", "bytes 5-9/*", null],
    ["a part of nothing told", undefined, 10],
    ["a part in other units", "items 5-9/10", 10],
  ].map(([name, range, told]) => ({
    name: `${name}, in place of the rest`,
    from: transfer({ have: 5, etag: ETAG, told: told as number | null }),
    status: 206,
    headers: { etag: ETAG, ...(range === undefined ? {} : { "content-range": String(range) }) },
    expect: { kind: "anew" as const },
  })),
  {
    name: "the rest, its length not told again",
    from: transfer({ have: 5, etag: ETAG, told: 10 }),
    status: 206,
    headers: { "content-range": "bytes 5-9/*", etag: ETAG },
    expect: { kind: "take", from: 5, total: 10 },
  },
  {
    name: "no such part, as the file was cut to what is there",
    from: transfer({ have: 5, etag: ETAG, told: 10 }),
    status: 416,
    headers: { "content-range": "bytes */5" },
    expect: { kind: "anew" },
  },
  {
    name: "a part that nobody asked for",
    from: transfer(),
    status: 206,
    headers: { "content-range": "bytes 0-4/10" },
    expect: { kind: "refused" },
  },
  {
    name: "no such part, as all is there",
    from: transfer({ have: 10, etag: ETAG }),
    status: 416,
    headers: { "content-range": "bytes */10" },
    expect: { kind: "whole" },
  },
  {
    name: "no such part of a shorter file",
    from: half,
    status: 416,
    headers: { "content-range": "bytes */4" },
    expect: { kind: "anew" },
  },
  { name: "no such part, without a length", from: half, status: 416, expect: { kind: "anew" } },
  {
    name: "a packed body",
    from: transfer(),
    status: 200,
    headers: { "content-length": "10", "content-encoding": "gzip" },
    expect: { kind: "refused" },
  },
  {
    name: "a busy server",
    from: transfer(),
    status: 503,
    headers: { "retry-after": "7" },
    expect: { kind: "later", afterMs: 7_000 },
  },
  { name: "a locked door", from: transfer(), status: 403, expect: { kind: "refused" } },
  { name: "nothing there", from: transfer(), status: 404, expect: { kind: "refused" } },
];
for (const { name, from, status, headers = {}, expect, why = /^/ } of heads) {
  test(`a download meets ${name}: ${expect.kind} [40.W1]`, () => {
    const verdict = judgeHead(from, { status, headers });
    assert.deepEqual({ ...verdict, ...expect }, verdict);
    assert.match("why" in verdict ? verdict.why : "", why);
  });
}

test("a file is whole only with as many bytes as were told", () => {
  assert.deepEqual(
    [judgeEnd(10, 10, true), judgeEnd(9, 10, true), judgeEnd(11, 10, true), judgeEnd(10, 10, false)],
    ["whole", "rest", "anew", "whole"],
  );
  assert.deepEqual([judgeEnd(10, null, true), judgeEnd(10, null, false)], ["whole", "anew"]);
});

test("pauses grow to a minute, and a server's word is kept up to five", () => {
  assert.deepEqual(
    [0, 1, 2, 10, 50].map((fails) => pauseMs(fails, null, 1)),
    [1_000, 2_000, 4_000, 60_000, 60_000],
  );
  assert.deepEqual([pauseMs(0, 9_000, 0), pauseMs(0, 9_000_000, 0)], [9_000, 300_000]);
});

interface Version {
  readonly etag: string;
  readonly bytes: string;
}

/** A server that keeps the rules of HTTP, or breaks them, over a file that may change between two requests. */
function answer(
  version: Version,
  asked: Readonly<Record<string, string>>,
  keepsRange: boolean,
): { status: number; headers: Record<string, string>; body: string } {
  const first = Number(/^bytes=(\d+)-$/.exec(asked["range"] ?? "")?.[1] ?? 0);
  const fits = asked["if-range"] === undefined || asked["if-range"] === version.etag;
  const { etag, bytes } = version;
  if (first === 0 || !keepsRange || !fits)
    return { status: 200, headers: { etag, "content-length": String(bytes.length) }, body: bytes };
  if (first >= bytes.length) return { status: 416, headers: { "content-range": `bytes */${bytes.length}` }, body: "" };
  const range = `bytes ${first}-${bytes.length - 1}/${bytes.length}`;
  return { status: 206, headers: { etag, "content-range": range }, body: bytes.slice(first) };
}

test("whatever breaks off and changes meanwhile, what is called whole is one version of the file [40.W1]", () => {
  const version = fc.record({ etag: fc.constantFrom('"a"', '"b"', '"c"'), size: fc.integer({ min: 1, max: 12 }) });
  const step = fc.record({ version, breaksAt: fc.option(fc.nat(12), { nil: null }), keepsRange: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 12 }), fc.boolean(), (steps, tagsContent) => {
      let [held, etag, length] = ["", null as string | null, null as number | null];
      for (const { version: told, breaksAt, keepsRange } of steps) {
        // The tag names the content: equal tags, equal bytes. Or it does not name all of it: the file grows and keeps its tag.
        const tag = tagsContent ? `"${told.etag[1]}${told.size}"` : told.etag;
        const now: Version = { etag: tag, bytes: (told.etag[1] ?? "").repeat(told.size) };
        const from = transfer({ have: held.length, etag, told: length });
        const asked = askFor(from);
        if (asked === null) break;
        const got = answer(now, asked, keepsRange);
        const verdict = judgeHead(from, got);
        if (verdict.kind === "anew") [held, etag, length] = ["", null, null];
        if (verdict.kind === "whole") {
          assert.equal(held, now.bytes);
          break;
        }
        if (verdict.kind !== "take") continue;
        if (verdict.from < held.length) held = "";
        held += breaksAt === null ? got.body : got.body.slice(0, breaksAt);
        ({ etag, total: length } = verdict);
        assert.ok(new Set(held).size <= 1, `bytes of two versions: ${held}`);
        if (judgeEnd(held.length, verdict.total, breaksAt === null) !== "whole") continue;
        assert.equal(held, now.bytes);
        break;
      }
    }),
    { numRuns: 2_000 },
  );
});
