import assert from "node:assert/strict";
import { test } from "node:test";
import { clientOrigin, type AddressedAs } from "./client-origin.ts";

const table: readonly (readonly [as: Partial<AddressedAs>, origin: string])[] = [
  [{ host: "gateway:8200" }, "http://gateway:8200"],
  [{ host: "[::1]:8200" }, "http://[::1]:8200"],
  [{}, "http://127.0.0.1:1"],
  [{ host: "gateway:8200", forwardedProto: "https" }, "https://gateway:8200"],
  [
    { host: "10.0.0.1:8200", forwardedProto: "HTTPS, http", forwardedHost: "di.example.com, inner" },
    "https://di.example.com",
  ],
  [{ host: "gateway", forwardedProto: "ftp" }, "http://gateway"],
  [{ host: "gateway", forwardedHost: "evil.example/path?x=" }, "http://gateway"],
  [{ host: "a b", forwardedHost: "" }, "http://127.0.0.1:1"],
];
for (const [as, origin] of table) {
  test(`addressed as ${JSON.stringify(as)} the gateway is ${origin} [20.F2]`, () => {
    const absent = { host: undefined, forwardedHost: undefined, forwardedProto: undefined };
    assert.equal(clientOrigin({ ...absent, ...as }, "127.0.0.1:1"), origin);
  });
}
