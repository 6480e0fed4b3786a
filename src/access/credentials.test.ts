import assert from "node:assert/strict";
import { test } from "node:test";
import { readCredential } from "./credentials.ts";

const KEY = "ym_CANARY-key";

const found: readonly (readonly [name: string, headers: readonly string[]])[] = [
  ["Authorization", ["Authorization", `Bearer ${KEY}`]],
  ["Authorization with the scheme in lower case", ["authorization", `bearer ${KEY}`]],
  ["Authorization with more space", ["AUTHORIZATION", `BEARER \t ${KEY} `]],
  ["x-api-key", ["X-Api-Key", KEY]],
  ["api-key", ["api-key", KEY]],
  ["the same key in two headers", ["x-api-key", KEY, "Authorization", `Bearer ${KEY}`]],
  ["another scheme beside a key header", ["Authorization", "Basic dTpw", "x-api-key", KEY]],
];
for (const [name, headers] of found) {
  test(`a key is read from ${name} [80.D2 80.C38]`, () =>
    assert.deepEqual(readCredential(["host", "a", ...headers], "/v1/models"), { kind: "key", value: KEY }));
}

const none: readonly (readonly [name: string, headers: readonly string[]])[] = [
  ["no header", []],
  ["an empty bearer", ["Authorization", "Bearer "]],
  ["a scheme alone", ["Authorization", "Bearer"]],
  ["basic authentication", ["Authorization", "Basic dTpw"]],
  ["a name that only looks alike", ["authorisation", `Bearer ${KEY}`]],
];
for (const [name, headers] of none)
  test(`${name} is no key`, () => assert.deepEqual(readCredential(headers, "/"), { kind: "none" }));

const bad: readonly (readonly [name: string, headers: readonly string[], target: string])[] = [
  ["two Authorization headers", ["Authorization", `Bearer ${KEY}`, "authorization", `Bearer ${KEY}`], "/"],
  ["two x-api-key headers", ["x-api-key", KEY, "x-api-key", "other"], "/"],
  ["two different keys", ["x-api-key", KEY, "authorization", "Bearer other"], "/"],
  ...["key", "api_key", "api-key", "access_token", "token", "KEY", "%6bey", "api%5Fkey", "+key"].map(
    (name) =>
      [`the query parameter ${name}`, ["authorization", `Bearer ${KEY}`], `/v1/models?a=1&${name}=${KEY}`] as const,
  ),
  ["a query parameter behind a semicolon", [], `/v1/models?a=1;key=${KEY}`],
  ["a query parameter without a value", [], "/v1/models?key"],
];
for (const [name, headers, target] of bad) {
  test(`${name}: the request is refused, and nothing of a key is in the reason [80.D2]`, () => {
    const credential = readCredential(headers, target);
    assert.equal(credential.kind, "bad");
    assert.ok(!JSON.stringify(credential).includes("CANARY"));
  });
}

test("a route's own header is a key there and nowhere else, once, and by the same rules [80.D2]", () => {
  const name = "ocp-apim-subscription-key";
  const read = (headers: readonly string[], of: string | undefined = name, target = "/documentintelligence/x") =>
    readCredential(["host", "a", ...headers], target, of).kind;
  assert.equal(read(["Ocp-Apim-Subscription-Key", KEY]), "key");
  assert.equal(read(["Ocp-Apim-Subscription-Key", KEY, "api-key", KEY]), "key");
  assert.equal(readCredential(["Ocp-Apim-Subscription-Key", KEY], "/v1/models").kind, "none");
  assert.equal(read(["Ocp-Apim-Subscription-Key", ""]), "none");
  assert.equal(read(["Ocp-Apim-Subscription-Key", KEY, "ocp-apim-subscription-key", KEY]), "bad");
  assert.equal(read(["Ocp-Apim-Subscription-Key", KEY, "authorization", "Bearer other"]), "bad");
  assert.equal(read(["Ocp-Apim-Subscription-Key", KEY], name, `/x?a=${KEY}`), "bad");
  assert.equal(read([], name, `/x?subscription-key=${KEY}`), "bad");
});

test("other query parameters pass, broken escapes included", () => {
  for (const target of ["/x?keys=1&monkey=2&max_tokens=3", "/x?a=key", "/x?%zz=1", "/x?", "/key/token"])
    assert.equal(readCredential([], target).kind, "none", target);
});
