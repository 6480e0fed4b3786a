import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { withPublicPlaces, type PublicPlace } from "./public-place.ts";

const AT: PublicPlace = { origin: "http://10.1.2.3:9", basePath: "", prefix: "/upstreams/h" };
const BASED: PublicPlace = { ...AT, basePath: "/api" };
const told = (value: string, at = AT): string | undefined => withPublicPlaces(["Location", value], at)[1];

const rows: { name: string; value: string; at?: PublicPlace; is: string | undefined }[] = [
  { name: "absolute", value: "http://10.1.2.3:9/v1/x?y=1#z", is: "/upstreams/h/v1/x?y=1#z" },
  { name: "the origin alone", value: "http://10.1.2.3:9", is: "/upstreams/h/" },
  { name: "path-absolute", value: "/v1/x", is: "/upstreams/h/v1/x" },
  { name: "without its scheme", value: "//10.1.2.3:9/v1/x", is: "/upstreams/h/v1/x" },
  { name: "in capitals, with a name and password", value: "HTTP://a:b@10.1.2.3:9/x", is: "/upstreams/h/x" },
  { name: "with the address as one number", value: "http://167838211:9/x", is: "/upstreams/h/x" },
  { name: "with backslashes and a tab", value: "http:\\\\10.1.2.3\t:9\\x", is: "/upstreams/h/x" },
  {
    name: "with the scheme's port written out",
    value: "https://h:443/x",
    at: { ...AT, origin: "https://h:443" },
    is: "/upstreams/h/x",
  },
  {
    name: "with the scheme's port left out",
    value: "https://h/x",
    at: { ...AT, origin: "https://h:443" },
    is: "/upstreams/h/x",
  },
  { name: "under the base path", value: "http://10.1.2.3:9/api/v1/x", at: BASED, is: "/upstreams/h/v1/x" },
  { name: "path-absolute under the base path", value: "/api/v1/x", at: BASED, is: "/upstreams/h/v1/x" },
  { name: "the base path itself", value: "/api", at: BASED, is: "/upstreams/h" },
  { name: "beside the base path", value: "http://10.1.2.3:9/apis/x", at: BASED, is: undefined },
  { name: "out of the base path by dots", value: "/api/../x", at: BASED, is: undefined },
  { name: "another host", value: "https://files.example/v1/x", is: "https://files.example/v1/x" },
  { name: "another port", value: "http://10.1.2.3:10/x", is: "http://10.1.2.3:10/x" },
  { name: "relative to the request", value: "x/y?z", is: "x/y?z" },
  { name: "a query alone", value: "?page=2", is: "?page=2" },
  { name: "nothing", value: "", is: "" },
  { name: "no address at all", value: "http://[", is: "http://[" },
];
for (const row of rows)
  test(`a place that an engine names is told as callers reach it: ${row.name} [80.D20]`, () => {
    assert.equal(told(row.value, row.at), row.is);
  });

test("both headers of a place are told so under any spelling, and all others stay [80.D20]", () => {
  const inner = "http://10.1.2.3:9/x";
  assert.deepEqual(
    withPublicPlaces(["LOCATION", inner, "link", inner, "Content-Location", inner, "location", "/y"], AT),
    ["LOCATION", "/upstreams/h/x", "link", inner, "Content-Location", "/upstreams/h/x", "location", "/upstreams/h/y"],
  );
});

test("no spelling of a place on the engine's own origin shows the engine's address [80.D20]", () => {
  fc.assert(
    fc.property(fc.webPath(), fc.constantFrom(AT, BASED), (path, at) => {
      const place = told(`${at.origin}${at.basePath}${path}`, at);
      assert.ok(place === undefined || (place.startsWith(at.prefix) && !place.includes("10.1.2.3")), place);
    }),
  );
});
