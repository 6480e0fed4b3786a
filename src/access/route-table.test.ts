import assert from "node:assert/strict";
import { test } from "node:test";
import { RouteTable, type TableRoute } from "./route-table.ts";

const row = (methods: readonly string[] | "any", pattern: string): TableRoute => ({ pattern, methods });
const TABLE = new RouteTable([
  row(["POST"], "/v1/*"),
  row(["POST"], "/v1/jobs"),
  row(["GET"], "/v1/jobs"),
  row(["DELETE"], "/v1/jobs/*"),
  row(["GET"], "/v1/jobs/*"),
  row(["GET"], "/v1/jobs/*/result"),
  row("any", "/through/*"),
]);

const rows: readonly (readonly [method: string, path: string, expect: string])[] = [
  ["GET", "/v1/jobs", "/v1/jobs "],
  ["PUT", "/v1/jobs", "allow POST, GET"],
  ["GET", "/v1/jobs/a", "/v1/jobs/* a"],
  ["DELETE", "/v1/jobs/a", "/v1/jobs/* a"],
  ["GET", "/v1/jobs/a/b", "/v1/jobs/* a/b"],
  ["GET", "/v1/jobs/a/result", "/v1/jobs/*/result a"],
  ["POST", "/v1/other/deep", "/v1/* other/deep"],
  ["GET", "/v1/other", "allow POST"],
  ["PATCH", "/through/x", "/through/* x"],
  ["TRACE", "/through/x", "allow "],
  ["GET", "/v1/jobs/", "allow POST"],
  ["GET", "/nowhere", "unknown"],
];
for (const [method, path, expect] of rows)
  test(`${method} ${path} is ${expect}`, () => {
    const match = TABLE.match(method, path);
    const said =
      match.kind === "route"
        ? `${match.route.pattern} ${match.rest}`
        : match.kind === "unknown"
          ? "unknown"
          : `allow ${match.allow}`;
    assert.equal(said, expect);
  });

test("a method that the narrowest fitting pattern does not take is refused, and not looked for in a wider one", () => {
  for (const [method, path, allow] of [
    ["POST", "/v1/jobs/a", "DELETE, GET"],
    ["DELETE", "/v1/jobs/a/result", "GET"],
    ["POST", "/v1/jobs/a/result", "GET"],
  ] as const)
    assert.deepEqual(TABLE.match(method, path), { kind: "methodNotAllowed", allow });
});
