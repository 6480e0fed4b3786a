import assert from "node:assert/strict";
import { test } from "node:test";
import { ERRORS, type ErrorCode } from "../kernel/errors.ts";
import { renderErrorBody, type Dialect } from "./error-body.ts";

const CODES = Object.keys(ERRORS) as ErrorCode[];
const DIALECTS: readonly Dialect[] = ["openai", "responses", "anthropic", "azure"];

interface Body {
  readonly error: {
    readonly message: string;
    readonly code: string;
    readonly innererror?: { readonly code: string; readonly request_id?: string };
    readonly target?: string;
  };
}
const read = (text: string): Body => JSON.parse(text) as Body;

for (const dialect of DIALECTS) {
  test(`every code has its status, its words and its own name in the ${dialect} envelope`, () => {
    for (const code of CODES) {
      const { status, text } = renderErrorBody(code, "the reason", { dialect, requestId: "req-1" });
      assert.equal(status, ERRORS[code].http, code);
      const { error } = read(text);
      assert.equal(error.message, "the reason");
      assert.equal(dialect === "azure" ? error.innererror?.code : error.code, code);
      assert.match(text, /"request_id":"req-1"/);
    }
  });
}

test("Azure's clients find its own code for the status in its place [20.F2]", () => {
  const codeOf = (code: ErrorCode): string =>
    read(renderErrorBody(code, "m", { dialect: "azure", param: "model" }).text).error.code;
  assert.deepEqual(
    (
      ["UNAUTHORIZED", "FORBIDDEN", "MODEL_UNKNOWN", "QUEUE_FULL", "BAD_REQUEST", "UPSTREAM_ERROR", "DRAINING"] as const
    ).map(codeOf),
    [
      "Unauthorized",
      "Forbidden",
      "NotFound",
      "TooManyRequests",
      "InvalidRequest",
      "InternalServerError",
      "ServiceUnavailable",
    ],
  );
});
