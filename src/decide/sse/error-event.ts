import { renderErrorBody, type Dialect } from "../../contract/error-body.ts";
import type { ErrorCode } from "../../kernel/errors.ts";

/**
 * The event that tells a client inside a stream that its answer is broken, in the stream's own format. No [DONE] follows.
 * Where an event has begun (`atBoundary` false) it is closed first, so that this one is read by itself.
 * `sequence` goes on from the stream's last sequence number, where the format counts its events.
 */
export function renderErrorEvent(
  format: Dialect,
  code: ErrorCode,
  message: string,
  atBoundary: boolean,
  options: { readonly requestId?: string | undefined; readonly sequence?: number | undefined } = {},
): Buffer {
  const close = atBoundary ? "" : "\n\n";
  return Buffer.from(
    `${close}${format === "openai" ? "" : "event: error\n"}data: ${errorData(format, code, message, options)}\n\n`,
    "utf8",
  );
}

function errorData(
  format: Dialect,
  code: ErrorCode,
  message: string,
  options: { readonly requestId?: string | undefined; readonly sequence?: number | undefined },
): string {
  if (format !== "responses")
    return renderErrorBody(code, message, { dialect: format, requestId: options.requestId }).text;
  const sequence = options.sequence === undefined ? {} : { sequence_number: options.sequence };
  const requestId = options.requestId === undefined ? {} : { request_id: options.requestId };
  return JSON.stringify({ type: "error", code, message, param: null, ...sequence, ...requestId });
}
