import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeHop, REDIRECTS_MAX } from "./judge-redirect.ts";

const FIRST = "https://hub.example/model";
const rows: readonly {
  readonly name: string;
  readonly from?: string;
  readonly to: string;
  readonly listed?: readonly string[];
  readonly expect: readonly [isOwn: boolean, guarded: boolean] | "refused";
}[] = [
  { name: "a path of its own", to: "/other", expect: [true, false] },
  { name: "another server, at a public address only", to: "https://cdn.example/x", expect: [false, true] },
  { name: "another port of the same host", to: "https://hub.example:8443/x", expect: [false, true] },
  { name: "a server inside that is listed", to: "https://10.1.2.3/x", listed: ["10.1.2.3"], expect: [false, false] },
  { name: "a port that is listed", to: "https://10.1.2.3:81/x", listed: ["10.1.2.3:81"], expect: [false, false] },
  { name: "another port than is listed", to: "https://10.1.2.3:82/x", listed: ["10.1.2.3:81"], expect: "refused" },
  { name: "the cloud's own address", to: "https://169.254.169.254/latest", expect: "refused" },
  { name: "loopback by IPv6", to: "https://[::1]/x", expect: "refused" },
  { name: "loopback in disguise", to: "https://2130706433/x", expect: "refused" },
  { name: "plain text", to: "http://hub.example/model", expect: "refused" },
  { name: "plain text to another", from: "http://127.0.0.1:1/a", to: "http://cdn.example/x", expect: "refused" },
  { name: "plain text to itself", from: "http://127.0.0.1:1/a", to: "/b", expect: [true, false] },
  { name: "a file", to: "file:///etc/passwd", expect: "refused" },
  { name: "a user", to: "https://a:b@cdn.example/", expect: "refused" },
  { name: "what is no URL", to: "https://[", expect: "refused" },
];
for (const { name, from = FIRST, to, listed = [], expect } of rows) {
  test(`a download is sent on to ${name}: ${String(expect)} [40.W1]`, () => {
    const hop = judgeHop(new URL(from), new URL(from), to, 0, listed);
    assert.deepEqual(hop.kind === "refused" ? "refused" : [hop.isOwn, hop.guarded], expect);
  });
}

test("a credential is not sent again after a detour over another origin's plain text, and redirects end", () => {
  const first = new URL(FIRST);
  const back = judgeHop(first, new URL("https://cdn.example/x"), FIRST, 1, []);
  assert.deepEqual([back.kind, back.kind === "go" && back.isOwn], ["go", true]);
  assert.equal(judgeHop(first, first, "/loop", REDIRECTS_MAX, []).kind, "refused");
});
