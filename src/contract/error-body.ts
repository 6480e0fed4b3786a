import { ERRORS, type ErrorCode } from "../kernel/errors.ts";

/** Which client library reads the answer: it decides the error's shape and the form of an error inside a stream. */
export type Dialect = "openai" | "anthropic" | "responses";

/** The OpenAI `type` of an error status, as its SDKs name them. */
function openaiType(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  if (status === 404) return "not_found_error";
  if (status === 429) return "rate_limit_error";
  if (status >= 500) return "server_error";
  return "invalid_request_error";
}

function anthropicType(status: number): string {
  if (status === 413) return "request_too_large";
  if (status === 503 || status === 529) return "overloaded_error";
  if (status >= 500) return "api_error";
  return openaiType(status);
}

export interface ErrorBody {
  readonly status: number;
  readonly text: string;
}

/**
 * The JSON body of a refusal. Anthropic's envelope carries the OpenAI members too, so that `error.code` is stable on
 * every route.
 */
export function renderErrorBody(
  code: ErrorCode,
  message: string,
  options: { readonly dialect: Dialect; readonly param?: string | undefined; readonly requestId?: string | undefined },
): ErrorBody {
  const status = ERRORS[code].http;
  const param = options.param ?? null;
  const requestId = options.requestId === undefined ? {} : { request_id: options.requestId };
  const body =
    options.dialect === "anthropic"
      ? { type: "error", error: { type: anthropicType(status), message, code, param }, ...requestId }
      : { error: { message, type: openaiType(status), code, param, ...requestId } };
  return { status, text: JSON.stringify(body) };
}
