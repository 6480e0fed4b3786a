import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobPart } from "../../contract/job.ts";
import { answerLine, type LineEnd } from "./answer-line.ts";

const part = (change: Partial<JobPart> = {}): JobPart => ({
  index: 0,
  requestId: "req-1",
  result: { status: 200, contentType: "application/json", bytes: 2 },
  error: null,
  ...change,
});
const anEnd = (change: Partial<LineEnd> = {}): LineEnd => ({
  id: "batch_req_1",
  customId: 'c"1',
  part: part(),
  bytes: Buffer.from('{"n":12345678901234567890}'),
  job: { state: "completed", error: null },
  void: null,
  ...change,
});
const none = { part: undefined, bytes: undefined } as const;
const failed = { state: "failed", error: { code: "JOB_INTERRUPTED", message: "it ended" } } as const;

const rows: readonly { readonly name: string; readonly end: LineEnd; readonly fate: string; readonly line: unknown }[] =
  [
    {
      name: "an answer",
      end: anEnd({ bytes: Buffer.from('{\n "n": 1\r\n}') }),
      fate: "completed",
      line: { response: { status_code: 200, request_id: "req-1", body: { n: 1 } }, error: null },
    },
    {
      name: "an answer that is no JSON is a text",
      end: anEnd({ bytes: Buffer.from('plain\n"text"') }),
      fate: "completed",
      line: { response: { status_code: 200, request_id: "req-1", body: 'plain\n"text"' }, error: null },
    },
    {
      name: "an engine's error",
      end: anEnd({
        part: part({
          result: { status: 422, contentType: "", bytes: 2 },
          error: { code: "ENGINE_ERROR", message: "the engine answered 422" },
        }),
        bytes: Buffer.from('{"error":"no"}'),
      }),
      fate: "failed",
      line: { response: { status_code: 422, request_id: "req-1", body: { error: "no" } }, error: null },
    },
    {
      name: "the gateway's own no, as a call would have got it",
      end: anEnd({ part: part({ result: null, error: { code: "MODEL_UNKNOWN", message: "gone" } }), bytes: undefined }),
      fate: "failed",
      line: {
        response: {
          status_code: 404,
          request_id: "req-1",
          body: { error: { message: "gone", type: "not_found_error", code: "MODEL_UNKNOWN", param: null } },
        },
        error: null,
      },
    },
    {
      name: "a line of a batch that was called off",
      end: anEnd({ ...none, void: "batch_cancelled" }),
      fate: "failed",
      line: {
        response: null,
        error: { code: "batch_cancelled", message: "This request was not executed because the batch was cancelled." },
      },
    },
    {
      name: "a line whose time was over",
      end: anEnd({ ...none, job: failed, void: "batch_expired" }),
      fate: "expired",
      line: {
        response: null,
        error: {
          code: "batch_expired",
          message: "This request could not be executed before the completion window expired.",
        },
      },
    },
    {
      name: "a line whose job failed without it",
      end: anEnd({ ...none, job: failed }),
      fate: "failed",
      line: {
        response: {
          status_code: 502,
          request_id: "batch_req_1",
          body: { error: { message: "it ended", type: "server_error", code: "JOB_INTERRUPTED", param: null } },
        },
        error: null,
      },
    },
  ];
for (const { name, end, fate, line } of rows)
  test(`${name} is one line of its file [20.J7]`, () => {
    const answered = answerLine(end);
    const text = answered.bytes.toString("utf8");
    assert.equal(answered.fate, fate);
    assert.equal(text.indexOf("\n"), text.length - 1);
    const read = JSON.parse(text) as Record<string, unknown>;
    assert.deepEqual(read, { id: "batch_req_1", custom_id: 'c"1', ...(line as object) });
  });

test("numbers of an answer are kept as the engine wrote them [20.J7]", () => {
  assert.match(answerLine(anEnd()).bytes.toString("utf8"), /"n":12345678901234567890/);
});
