import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { readHistory, readQueue, viewPath, OUTPUT_FILES_MAX, type HistoryReading } from "./prompt-pages.ts";

const ID = "0c3a4a5e-0000-8000-8000-000000000001";
const page = (entry: unknown): string => JSON.stringify({ [ID]: entry });
const success = { status_str: "success", completed: true, messages: [] };
const failedBy = (detail: Record<string, unknown>): unknown => ({
  outputs: {},
  status: {
    status_str: "error",
    completed: false,
    messages: [
      ["execution_start", {}],
      ["execution_error", detail],
    ],
  },
});
const file = { filename: "a.mp4", subfolder: "x", type: "output" };
const preview = { filename: "p.png", subfolder: "", type: "temp" };

const rows: { name: string; body: string; expect: HistoryReading | undefined }[] = [
  { name: "an unknown, waiting or running prompt is absent", body: "{}", expect: { kind: "absent" } },
  { name: "another one's entry is none of ours", body: '{"other":{}}', expect: { kind: "absent" } },
  {
    name: "previews are no outputs beside what is kept",
    body: page({ outputs: { "2": { images: [preview], animated: [true] }, "9": { gifs: [file] } }, status: success }),
    expect: {
      kind: "succeeded",
      files: [{ node: "9", ...file }],
      outputs:
        '{"2":{"images":[{"filename":"p.png","subfolder":"","type":"temp"}],"animated":[true]},"9":{"gifs":[{"filename":"a.mp4","subfolder":"x","type":"output"}]}}',
    },
  },
  {
    name: "previews alone are what there is",
    body: page({ outputs: { "2": { images: [preview] } }, status: success }),
    expect: {
      kind: "succeeded",
      files: [{ node: "2", ...preview }],
      outputs: '{"2":{"images":[{"filename":"p.png","subfolder":"","type":"temp"}]}}',
    },
  },
  {
    name: "success without outputs is told as such",
    body: page({ outputs: {}, status: success }),
    expect: { kind: "succeeded", files: [], outputs: "" },
  },
  {
    name: "a node that throws fails for good, by its own words",
    body: page(failedBy({ node_type: "KSampler", exception_type: "ValueError", exception_message: "wrong\nshape" })),
    expect: { kind: "failed", why: "the node KSampler failed: wrong shape", again: false },
  },
  {
    name: "a full card may be empty later",
    body: page(failedBy({ node_type: "VAE", exception_type: "torch.OutOfMemoryError", exception_message: "" })),
    expect: { kind: "failed", why: "the node VAE failed: no words", again: true },
  },
  {
    name: "an error without words is a failure",
    body: page({ status: { status_str: "error" } }),
    expect: { kind: "failed", why: "a node failed: no words", again: false },
  },
  {
    name: "somebody stopped it",
    body: page({ status: { status_str: "error", messages: [["execution_interrupted", {}]] } }),
    expect: { kind: "interrupted" },
  },
  {
    name: "an entry without a state says nothing",
    body: page({ outputs: { "9": { gifs: [file] } } }),
    expect: undefined,
  },
  { name: "what is no JSON says nothing", body: "<html>", expect: undefined },
  { name: "a list says nothing", body: "[]", expect: undefined },
];
for (const { name, body, expect } of rows)
  test(`history: ${name} [20.F3]`, () => assert.deepEqual(readHistory(body, ID), expect));

test("no more than so many files are handed over, and names go into the query whole", () => {
  const many = Array.from({ length: 100 }, (_none, i) => ({ ...file, filename: `${i}.png` }));
  const read = readHistory(page({ outputs: { "9": { images: many } }, status: success }), ID);
  assert.equal(read?.kind === "succeeded" && read.files.length, OUTPUT_FILES_MAX);
  const odd = { node: "9", filename: "a&b=c ../#.png", subfolder: "x/y", type: "output" };
  const url = new URL(viewPath(odd), "http://comfy");
  assert.deepEqual(
    [...url.searchParams.entries()],
    [
      ["filename", odd.filename],
      ["subfolder", odd.subfolder],
      ["type", odd.type],
    ],
  );
});

test("queue: running, waiting behind who has the lower number, unknown, or unreadable [20.F3]", () => {
  const item = (number: number, id: string, client = "c"): unknown => [number, id, {}, { client_id: client }, []];
  const queue = (running: unknown[], pending: unknown[]): string =>
    JSON.stringify({ queue_running: running, queue_pending: pending });
  assert.deepEqual(readQueue(queue([item(1, ID)], []), ID), { kind: "running", promptId: ID });
  // A heap, in no order.
  const heap = [item(3, "b"), item(9, "z"), item(4, ID), item(-1, "front")];
  assert.deepEqual(readQueue(queue([item(2, "a")], heap), ID), { kind: "pending", promptId: ID, ahead: 3 });
  assert.deepEqual(readQueue(queue([item(2, "its-own-id", ID)], []), ID), { kind: "running", promptId: "its-own-id" });
  assert.deepEqual(readQueue(queue([], []), ID), { kind: "absent" });
  for (const body of ["", "{}", "[]", '{"queue_running":[]}', '{"queue_running":{},"queue_pending":{}}'])
    assert.equal(readQueue(body, ID), undefined, body);
});

test("no page makes a reading throw, and nothing but a state of success is a success [20.F3]", () => {
  const value = fc.letrec((tie) => ({
    any: fc.oneof(
      { depthSize: "small" },
      fc.constantFrom<unknown>("success", "error", null, 1, "", [], [[]], ["execution_error"]),
      fc.array(tie("any"), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom("status", "status_str", "outputs", "messages", "completed", ID), tie("any"), {
        maxKeys: 4,
      }),
    ),
  })).any;
  fc.assert(
    fc.property(value, (some) => {
      const body = JSON.stringify({ [ID]: some, queue_running: [some], queue_pending: [some] });
      readQueue(body, ID);
      const read = readHistory(body, ID);
      if (read?.kind === "succeeded") assert.ok(body.includes('"status_str":"success"'));
    }),
    { numRuns: 500 },
  );
});
