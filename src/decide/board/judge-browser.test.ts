import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { judgeHost, judgeOrigin } from "./judge-browser.ts";

const names = new Set(["board.example.org", "gpu-head"]);

const hosts: readonly (readonly [host: string | undefined, ok: boolean])[] = [
  ["127.0.0.1:8300", true],
  ["localhost:8300", true],
  ["LocalHost", true],
  ["[::1]:8300", true],
  ["10.1.2.3", true],
  ["board.example.org", true],
  ["Board.Example.Org:443", true],
  ["gpu-head:8300", true],
  ["evil.example", false],
  ["board.example.org.evil.example", false],
  ["evil-board.example.org", false],
  ["localhost.evil.example", false],
  ["127.0.0.1.evil.example", false],
  ["1.2.3", false],
  ["a b", false],
  ["user@localhost", false],
  ["localhost/", false],
  ["localhost:99999999", false],
  ["", false],
  [undefined, false],
];
for (const [host, ok] of hosts)
  test(`the board is ${ok ? "served" : "not served"} as ${JSON.stringify(host) ?? "nothing"} [80.D34]`, () =>
    assert.equal(judgeHost(host, names).kind === "ok", ok));

const base = { method: "POST", host: "h:1", origin: undefined, secFetchSite: undefined, byCookie: true };
const origins: readonly (readonly [
  what: string,
  request: Partial<typeof base> | Record<string, unknown>,
  ok: boolean,
])[] = [
  ["its own page", { origin: "http://h:1", secFetchSite: "same-origin" }, true],
  ["its own page behind a proxy with TLS", { origin: "https://h:1" }, true],
  ["its own page in a browser that says nothing of sites", { origin: "http://H:1" }, true],
  ["a page elsewhere", { origin: "https://evil.example" }, false],
  ["another port", { origin: "http://h:2" }, false],
  ["a page that hides its origin", { origin: "null" }, false],
  ["an origin that is none", { origin: "http://h:1@evil.example" }, false],
  ["a page of the same site", { origin: "http://h:1", secFetchSite: "same-site" }, false],
  ["a page elsewhere that says no origin", { secFetchSite: "cross-site" }, false],
  ["a cookie and nothing else", {}, false],
  ["ctl, which has a key", { byCookie: false }, true],
  ["a page elsewhere with a key", { byCookie: false, origin: "https://evil.example" }, false],
];
for (const [what, request, ok] of origins)
  test(`a change that comes from ${what} is ${ok ? "taken" : "refused"} [80.D34 80.C49]`, () =>
    assert.equal(judgeOrigin({ ...base, ...request }).kind === "ok", ok));

test("no method that changes something comes through from another origin, and reading does [80.D34]", () => {
  fc.assert(
    fc.property(
      fc.constantFrom("POST", "PUT", "PATCH", "DELETE", "FOO"),
      fc.webUrl(),
      fc.boolean(),
      (method, url, byCookie) => {
        const { origin, host } = new URL(url);
        fc.pre(host !== "h:1");
        assert.equal(judgeOrigin({ ...base, method, origin, byCookie }).kind, "refused");
        assert.equal(judgeOrigin({ ...base, method: "GET", origin, byCookie }).kind, "ok");
      },
    ),
  );
});
