import assert from "node:assert/strict";
import { BlockList, isIP } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { judgeAddress, judgeCallbackUrl, parseCallbackAllow, type CallbackRules } from "./judge-callback.ts";
import { classOfAddress, inRange, parseIp, parseIpRange } from "./ip-address.ts";

function rulesOf(...entries: string[]): CallbackRules {
  const parsed = parseCallbackAllow(entries);
  if (parsed.kind === "bad") throw new Error(parsed.entry);
  return parsed.rules;
}
const OPEN = rulesOf("hooks.example.com", "*.internal.example", "http://plain.example:8080", "8.8.8.8");

const allowed = [
  "https://hooks.example.com/done?job=1",
  "https://HOOKS.example.com:443/",
  "https://a.b.internal.example/",
  "http://plain.example:8080/x",
  "https://8.8.8.8/",
];
for (const url of allowed) test(`${url} is called [20.J8]`, () => assert.equal(judgeCallbackUrl(url, OPEN).kind, "ok"));

// Every spelling of a place inside that a parser may let through, and everything that is not a plain https URL.
const hostile = [
  "https://127.0.0.1/",
  "https://0/",
  "https://2130706433/",
  "https://0x7f.1/",
  "https://0177.0.0.1/",
  "https://127.1/",
  "https://[::1]/",
  "https://[::ffff:7f00:1]/",
  "https://[::ffff:127.0.0.1]/",
  "https://[::]/",
  "https://0.0.0.0/",
  "https://169.254.169.254/latest/meta-data/",
  "https://[fe80::1]/",
  "https://[fd00::1]/",
  "https://10.0.0.1/",
  "https://192.168.1.1/",
  "https://172.16.0.1/",
  "https://100.64.0.1/",
  "https://[64:ff9b::7f00:1]/",
  "https://[2002:7f00:1::]/",
  "https://localhost/",
  "https://localhost./",
  "https://hooks.example.com./",
  "https://hooks.example.com:8443/",
  "http://hooks.example.com/",
  "https://user@hooks.example.com/",
  "https://hooks.example.com@evil.example/",
  "https://:@hooks.example.com/",
  "https:\\\\hooks.example.com\\",
  "https://hooks.example.com\\@evil.example/",
  "https://hooks.exa\tmple.com/",
  "https://hooks.example.com/\r\nx: y",
  "https://höoks.example.com/",
  "https://ⓗooks.example.com/",
  "unix:/var/run/docker.sock",
  "file:///etc/passwd",
  "gopher://hooks.example.com/",
  "ftp://hooks.example.com/",
  "data:text/plain,x",
  "//hooks.example.com/",
  "hooks.example.com",
  "",
  "https://internal.example/",
  "https://evilinternal.example/",
  "https://plain.example:8080/",
  `https://hooks.example.com/${"x".repeat(3_000)}`,
];
for (const url of hostile)
  test(`${JSON.stringify(url.slice(0, 60))} is refused [80.D21]`, () =>
    assert.equal(judgeCallbackUrl(url, OPEN).kind, "refused"));

test("an empty list allows nothing [20.J8]", () => {
  for (const url of allowed) assert.equal(judgeCallbackUrl(url, rulesOf()).kind, "refused");
});

test("an address that is not public is used where the list names it, and nowhere else [20.J8 80.C44]", () => {
  const rules = rulesOf("http://127.0.0.1:9000", "hooks.example.com", "10.1.0.0/16");
  assert.equal(judgeCallbackUrl("http://127.0.0.1:9000/x", rules).kind, "ok");
  assert.equal(judgeCallbackUrl("http://127.0.0.1:9001/x", rules).kind, "refused");
  assert.equal(judgeCallbackUrl("https://10.1.2.3/", rules).kind, "ok");
  for (const [address, expected] of [
    ["10.1.2.3", true],
    ["10.2.2.3", false],
    ["127.0.0.1", true],
    ["127.0.0.2", false],
    ["1.1.1.1", true],
    ["::1", false],
    ["::ffff:10.1.2.3", true],
    ["nonsense", false],
  ] as const)
    assert.equal(judgeAddress(address, rules), expected, address);
});

test("an entry allows its own scheme and port, also where it names an address or a range [20.J8 80.D21]", () => {
  const rules = rulesOf("http://127.0.0.1:9000", "http://10.1.0.0/16", "10.2.0.0/16", "[fd00::1]:8443");
  for (const [url, expected] of [
    ["http://127.0.0.1:9000/", "ok"],
    ["https://127.0.0.1:9000/", "refused"],
    ["https://127.0.0.1/", "refused"],
    ["http://127.0.0.1/", "refused"],
    ["http://10.1.2.3/", "ok"],
    ["https://10.1.2.3/", "refused"],
    ["http://10.1.2.3:8080/", "refused"],
    ["https://10.2.2.3/", "ok"],
    ["http://10.2.2.3/", "refused"],
    ["https://[fd00::1]:8443/", "ok"],
    ["https://[fd00::1]/", "refused"],
    ["https://[fd00::2]:8443/", "refused"],
  ] as const)
    assert.equal(judgeCallbackUrl(url, rules).kind, expected, url);
});

test("a list entry that can't be read is named", () => {
  for (const entry of ["", "https://", "a b", "host:0", "host:99999", "*.*.x", "10.0.0.0/33", "http://u@h"])
    assert.deepEqual(parseCallbackAllow(["ok.example", entry]), { kind: "bad", entry });
});

test("what passes has a host of the list, whatever text is given [80.D21 80.C44]", () => {
  const piece = fc.constantFrom(
    "https://",
    "http://",
    "hooks.example.com",
    "127.0.0.1",
    "[::1]",
    "@",
    "/",
    "\\",
    ":",
    "443",
    "#",
    "?",
    ".",
    "%2e",
    "\t",
    "x",
    "0x7f",
    "internal.example",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 7 }), (pieces) => {
      const verdict = judgeCallbackUrl(pieces.join(""), OPEN);
      if (verdict.kind === "ok") {
        assert.match(verdict.host, /^(?:hooks\.example\.com|.+\.internal\.example|plain\.example|8\.8\.8\.8)$/);
        assert.equal(new URL(verdict.url).hostname.replace(/^\[|\]$/g, ""), verdict.host);
      }
    }),
    { numRuns: 20_000 },
  );
});

test("addresses are read as the system reads them, and ranges hold what they say", () => {
  const text = fc.oneof(fc.ipV4(), fc.ipV6(), fc.string({ unit: fc.constantFrom(..."0123456789abcdef:.") }));
  fc.assert(
    fc.property(text, (address) => assert.equal(parseIp(address) !== undefined, isIP(address) !== 0, address)),
    { numRuns: 5_000 },
  );
  const lists = ["10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"].map(
    (range) => {
      const list = new BlockList();
      const [base = "", bits] = range.split("/");
      list.addSubnet(base, Number(bits), "ipv4");
      return [range, list] as const;
    },
  );
  fc.assert(
    fc.property(fc.ipV4(), (address) => {
      const bytes = parseIp(address)!;
      for (const [range, list] of lists)
        assert.equal(inRange(bytes, parseIpRange(range)!), list.check(address, "ipv4"));
      if (lists.some(([, list]) => list.check(address, "ipv4"))) assert.notEqual(classOfAddress(bytes), "public");
    }),
  );
});
