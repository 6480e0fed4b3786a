import type { ServerResponse } from "node:http";
import type { RefusalDetails } from "../../contract/control-api.ts";
import { renderErrorBody } from "../../contract/error-body.ts";
import { renderRetryAfter } from "../../decide/http/retry-after.ts";
import { ERRORS, type ErrorCode, YardmasterError } from "../../kernel/errors.ts";

export type Answer =
  /** Writes its own head and body. */
  | { readonly kind: "own"; readonly write: (res: ServerResponse) => void }
  | {
      readonly kind: "json";
      readonly status: number;
      readonly body: unknown;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** Plain text, unless it says otherwise. */
  | {
      readonly kind: "text";
      readonly status: number;
      readonly text: string;
      readonly type?: string;
      readonly headers?: Readonly<Record<string, string>>;
    };

export const json = (body: unknown, status = 200, headers: Readonly<Record<string, string>> = {}): Answer => ({
  kind: "json",
  status,
  body,
  headers,
});

/** A refusal that has more to say than its message. */
export class Refusal extends YardmasterError {
  readonly details: RefusalDetails;

  constructor(code: ErrorCode, message: string, details: RefusalDetails) {
    super(code, message);
    this.details = details;
  }
}

const COMMON = { "cache-control": "no-store", "x-content-type-options": "nosniff" };
const RETRY_AFTER_MS = 2_000;

export function send(res: ServerResponse, requestId: string, answer: Answer): void {
  if (res.destroyed || res.headersSent) return;
  if (answer.kind === "own") {
    res.setHeader("x-request-id", requestId);
    answer.write(res);
    return;
  }
  const text = answer.kind === "json" ? `${JSON.stringify(answer.body)}\n` : answer.text;
  res.writeHead(answer.status, {
    "content-type": answer.kind === "json" ? "application/json" : (answer.type ?? "text/plain; charset=utf-8"),
    ...COMMON,
    "x-request-id": requestId,
    ...answer.headers,
    "content-length": Buffer.byteLength(text),
  });
  res.end(text);
}

/** Ends the connection: what stands behind a refused request, or is left of its body, is not looked at. */
export function refuse(
  res: ServerResponse,
  requestId: string,
  code: ErrorCode,
  message: string,
  facts: { readonly details?: RefusalDetails; readonly allow?: string; readonly retryAfterMs?: number } = {},
): void {
  if (res.destroyed || res.headersSent) return;
  const { status, text } = renderErrorBody(code, message, { dialect: "openai", requestId });
  const whole =
    facts.details === undefined ? text : JSON.stringify({ ...(JSON.parse(text) as object), details: facts.details });
  const rule: { readonly retry: string; readonly retryAfter?: boolean } = ERRORS[code];
  res.writeHead(status, {
    "content-type": "application/json",
    ...COMMON,
    "x-request-id": requestId,
    ...(facts.allow === undefined ? {} : { allow: facts.allow }),
    ...(code === "UNAUTHORIZED" ? { "www-authenticate": 'Bearer realm="yardmaster"' } : {}),
    ...(rule.retryAfter === true ? { "retry-after": renderRetryAfter(facts.retryAfterMs ?? RETRY_AFTER_MS) } : {}),
    connection: "close",
    "content-length": Buffer.byteLength(whole),
  });
  res.end(whole);
}
