import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { OperationReader, type OperationReading } from "./operation.ts";

function read(text: string, cut = text.length): OperationReading {
  const reader = new OperationReader();
  const bytes = Buffer.from(text);
  reader.push(bytes.subarray(0, cut));
  reader.push(bytes.subarray(cut));
  return reader.end();
}

const table: readonly (readonly [text: string, kind: OperationReading["kind"]])[] = [
  ['{"status":"notStarted"}', "under"],
  ['{"status":"running","createdDateTime":"x"}', "under"],
  ['{"status":"succeeded","analyzeResult":{"content":""}}', "succeeded"],
  ['{"analyzeResult":{"content":"status"},"status":"succeeded"}', "succeeded"],
  ['{"status":"Succeeded","analyzeResult":{"content":""}}', "succeeded"],
  ['{"status":"succeeded"}', "noResult"],
  ['{"status":"succeeded","analyzeResult":null}', "noResult"],
  ['{"status":"succeeded","analyzeResult":{}}', "noResult"],
  ['{"status":"failed","error":{"code":"InvalidContent","message":"corrupted"}}', "failed"],
  ['{"status":"failed"}', "failed"],
  ['{"status":"failed","error":"text"}', "failed"],
  ['{"status":"canceled"}', "failed"],
  ['{"status":"levitating"}', "unreadable"],
  ['{"status":7}', "unreadable"],
  ["{}", "unreadable"],
  ["[]", "unreadable"],
  ["", "unreadable"],
  ["<html>", "unreadable"],
  ['{"status":"succeeded","analyzeResult":{"content":"', "unreadable"],
  ['{"status":"running","status":"succeeded","analyzeResult":{"a":1}}', "unreadable"],
];
for (const [text, kind] of table)
  test(`${text.slice(0, 70) || "an empty body"} is ${kind}, wherever it is cut [20.F2]`, () => {
    for (let cut = 0; cut <= text.length; cut += 1) assert.equal(read(text, cut).kind, kind, `cut at ${cut}`);
  });

test("a failure's own words are kept, in bounds", () => {
  assert.deepEqual(read('{"status":"failed","error":{"code":"InvalidContent","message":"corrupted"}}'), {
    kind: "failed",
    code: "InvalidContent",
    message: "corrupted",
  });
  const long = read(JSON.stringify({ status: "failed", error: { code: "c".repeat(5_000), message: "" } }));
  assert.ok(long.kind === "failed" && long.code.length === 1_000 && long.message.length > 0);
});

test("nothing but an object with a result is a success, whatever comes [20.F2]", () => {
  const bodies = fc.oneof(
    fc.json(),
    fc
      .record({ status: fc.constantFrom("succeeded", "running", "x"), analyzeResult: fc.jsonValue() })
      .map((value) => JSON.stringify(value)),
  );
  fc.assert(
    fc.property(bodies, (text) => {
      if (read(text).kind !== "succeeded") return;
      const { status, analyzeResult } = JSON.parse(text) as { status: string; analyzeResult: unknown };
      assert.equal(status.toLowerCase(), "succeeded");
      assert.ok(analyzeResult !== null && analyzeResult !== undefined);
    }),
    { numRuns: 2_000 },
  );
});
