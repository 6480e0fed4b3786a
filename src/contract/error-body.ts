import { assertNever } from "../kernel/assert-never.ts";
import { ERRORS, type ErrorCode } from "../kernel/errors.ts";

/** Which client library reads the answer: it decides the error's shape and the form of an error inside a stream. */
export type Dialect = "openai" | "anthropic" | "responses" | "azure";

/** The OpenAI `type` of an error status, as its SDKs name them. */
export function openaiType(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  if (status === 404) return "not_found_error";
  if (status === 429) return "rate_limit_error";
  if (status >= 500) return "server_error";
  return "invalid_request_error";
}

/** Anthropic's, which has a fixed set of them. */
export function anthropicType(status: number): string {
  if (status === 413) return "request_too_large";
  if (status === 503 || status === 529) return "overloaded_error";
  if (status >= 500) return "api_error";
  return openaiType(status);
}

/** Azure's own top-level codes; its clients print them, and branch on the status. */
const AZURE_CODES: Readonly<Record<number, string>> = {
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  405: "MethodNotAllowed",
  409: "Conflict",
  429: "TooManyRequests",
  503: "ServiceUnavailable",
  504: "Timeout",
};
const azureCode = (status: number): string =>
  AZURE_CODES[status] ?? (status >= 500 ? "InternalServerError" : "InvalidRequest");

export interface ErrorBody {
  readonly status: number;
  readonly text: string;
}

/**
 * The JSON body of a refusal. Anthropic's envelope carries the OpenAI members too, so that `error.code` is stable on
 * every route; Azure's own codes stand there on its routes, and ours in `error.innererror.code`.
 */
export function renderErrorBody(
  code: ErrorCode,
  message: string,
  options: { readonly dialect: Dialect; readonly param?: string | undefined; readonly requestId?: string | undefined },
): ErrorBody {
  const status = ERRORS[code].http;
  return { status, text: JSON.stringify(bodyOf(code, status, message, options)) };
}

function bodyOf(
  code: ErrorCode,
  status: number,
  message: string,
  {
    dialect,
    param = null,
    requestId,
  }: { dialect: Dialect; param?: string | null | undefined; requestId?: string | undefined },
): Record<string, unknown> {
  const id = requestId === undefined ? {} : { request_id: requestId };
  switch (dialect) {
    case "anthropic":
      return { type: "error", error: { type: anthropicType(status), message, code, param }, ...id };
    case "azure":
      return {
        error: {
          code: azureCode(status),
          message,
          ...(param === null ? {} : { target: param }),
          innererror: { code, message, ...id },
        },
      };
    case "openai":
    case "responses":
      return { error: { message, type: openaiType(status), code, param, ...id } };
    default:
      return assertNever(dialect, "dialect");
  }
}
