import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Dialect } from "../../contract/error-body.ts";
import { normaliseEngineError } from "./engine-error.ts";

interface Shaped {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly code: unknown;
    readonly param: unknown;
    readonly request_id: string;
    readonly upstream_body?: string;
  };
}

const normalised = (
  status: number,
  contentType: string,
  body: string | Buffer,
  dialect: Dialect = "openai",
): string | null =>
  normaliseEngineError({ status, contentType, body: Buffer.from(body as string) }, { dialect, requestId: "req-1" });

function shaped(status: number, contentType: string, body: string): Shaped["error"] {
  const text = normalised(status, contentType, body);
  assert.ok(text !== null);
  return (JSON.parse(text) as Shaped).error;
}

test("an engine's error object passes untouched", () => {
  for (const body of [
    '{"error":{"message":"m","type":"t","param":null,"code":404}}',
    ' {"error":{}} ',
    '{"type":"error","error":{"type":"not_found_error","message":"m"}}',
  ]) {
    assert.equal(normalised(404, "application/json; charset=utf-8", body), null);
  }
});

const rows: {
  name: string;
  status: number;
  contentType: string;
  body: string;
  message: RegExp;
  type: string;
  code: unknown;
}[] = [
  {
    name: "an HTML page",
    status: 502,
    contentType: "text/html",
    body: "<html><h1>502 Bad Gateway</h1></html>",
    message: /502/,
    type: "server_error",
    code: null,
  },
  {
    name: "no body",
    status: 500,
    contentType: "",
    body: "",
    message: /without a body/,
    type: "server_error",
    code: null,
  },
  {
    name: "plain text",
    status: 503,
    contentType: "text/plain",
    body: "no healthy upstream",
    message: /503/,
    type: "server_error",
    code: null,
  },
  {
    name: "a list",
    status: 400,
    contentType: "application/json",
    body: "[]",
    message: /400/,
    type: "invalid_request_error",
    code: null,
  },
  {
    name: "a detail",
    status: 404,
    contentType: "application/json",
    body: '{"detail":"Not Found"}',
    message: /^Not Found$/,
    type: "not_found_error",
    code: null,
  },
  {
    name: "a list of details",
    status: 422,
    contentType: "application/json",
    body: '{"detail":[{"loc":["body"]}]}',
    message: /loc/,
    type: "invalid_request_error",
    code: null,
  },
  {
    name: "the flat shape",
    status: 400,
    contentType: "application/json",
    body: '{"object":"error","message":"too long","type":"BadRequestError","param":"input","code":400}',
    message: /^too long$/,
    type: "BadRequestError",
    code: 400,
  },
  {
    name: "an error that is a string",
    status: 401,
    contentType: "application/json",
    body: '{"error":"Unauthorized"}',
    message: /^Unauthorized$/,
    type: "authentication_error",
    code: null,
  },
  {
    name: "an error with its own type",
    status: 429,
    contentType: "application/json",
    body: '{"error":"full","error_type":"Overloaded"}',
    message: /^full$/,
    type: "Overloaded",
    code: null,
  },
  {
    name: "half an object",
    status: 500,
    contentType: "application/json",
    body: '{"error":{"mess',
    message: /500/,
    type: "server_error",
    code: null,
  },
];
for (const row of rows) {
  test(`an error answer that libraries can't read gets the usual shape and keeps its text: ${row.name}`, () => {
    const error = shaped(row.status, row.contentType, row.body);
    assert.match(error.message, row.message);
    assert.deepEqual([error.type, error.code, error.request_id], [row.type, row.code, "req-1"]);
    assert.equal(error.upstream_body, row.body === "" ? undefined : row.body);
  });
}

const anthropicRows: { name: string; status: number; body: string; type: string; message: RegExp; code: unknown }[] = [
  {
    name: "an HTML page",
    status: 502,
    body: "<html><h1>502 Bad Gateway</h1></html>",
    type: "api_error",
    message: /502/,
    code: null,
  },
  { name: "no body", status: 503, body: "", type: "overloaded_error", message: /without a body/, code: null },
  {
    name: "OpenAI's shape",
    status: 400,
    body: '{"error":{"message":"too long","type":"BadRequestError","param":"messages","code":400}}',
    type: "invalid_request_error",
    message: /^too long$/,
    code: 400,
  },
  {
    name: "OpenAI's shape beside a type of another kind",
    status: 404,
    body: '{"type":"x","error":{"message":"no such model","code":"model_not_found"}}',
    type: "not_found_error",
    message: /^no such model$/,
    code: "model_not_found",
  },
  {
    name: "an error of no words",
    status: 429,
    body: '{"error":{}}',
    type: "rate_limit_error",
    message: /429/,
    code: null,
  },
  {
    name: "a detail",
    status: 404,
    body: '{"detail":"Not Found"}',
    type: "not_found_error",
    message: /^Not Found$/,
    code: null,
  },
];
for (const row of anthropicRows)
  test(`Anthropic's clients get an engine's error in the shape that they read: ${row.name} [80.A10]`, () => {
    const answer = JSON.parse(normalised(row.status, "application/json", row.body, "anthropic") ?? "null");
    assert.deepEqual([answer.type, answer.request_id], ["error", "req-1"]);
    assert.deepEqual([answer.error.type, answer.error.code], [row.type, row.code]);
    assert.match(answer.error.message, row.message);
    assert.equal(answer.error.upstream_body, row.body === "" ? undefined : row.body);
  });

test("an engine's error in Anthropic's shape passes untouched on Anthropic's routes, and as JSON under any label [80.A10]", () => {
  const body = '{"type":"error","error":{"type":"not_found_error","message":"m"}}';
  assert.equal(normalised(404, "application/json", body, "anthropic"), null);
  assert.equal(normalised(404, "text/event-stream", body, "anthropic"), body);
});

test("the original text is cut, and its control characters are written out [80.A10]", () => {
  const error = shaped(500, "text/plain", `\u001b[31mred\u0000${"x".repeat(100_000)}`);
  assert.ok(error.upstream_body !== undefined && error.upstream_body.length < 2_100);
  assert.ok(error.upstream_body.startsWith("\\u001b[31mred\\u0000"));
});

test("no bytes make it throw, and what comes out can be read", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.uint8Array({ maxLength: 100 }).map((bytes) => Buffer.from(bytes)),
        fc.json().map((text) => Buffer.from(text)),
      ),
      (body) => {
        const text = normalised(500, "application/json", body);
        assert.equal(typeof (JSON.parse(text ?? body.toString()) as Shaped).error, "object");
      },
    ),
    { numRuns: 300 },
  );
});
