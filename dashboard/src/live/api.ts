import { BOARD_READS, BOARD_ROUTES } from "../../../src/contract/board.ts";
import type { ActionRequest } from "../logic/describe-action.ts";

/** What came of a request to the control plane's API. */
export type ApiResult<T> =
  | { readonly kind: "done"; readonly body: T }
  /** Refused, with the same code that `ctl` prints. */
  | { readonly kind: "refused"; readonly status: number; readonly code: string; readonly message: string }
  | { readonly kind: "unreachable" };

type SignedOut = () => void;
let onSignedOut: SignedOut = () => {};
/** Told when any answer says that the session has ended. */
export const whenSignedOut = (listener: SignedOut): void => void (onSignedOut = listener);

export async function ask<T>(
  method: string,
  path: string,
  body: unknown = null,
  signal?: AbortSignal,
): Promise<ApiResult<T>> {
  try {
    const response = await fetch(path, {
      method,
      headers: body === null ? {} : { "content-type": "application/json" },
      body: body === null ? null : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      ...(signal === undefined ? {} : { signal }),
    });
    if (response.ok) return { kind: "done", body: await readBody<T>(response) };
    if (response.status === 401 && path !== BOARD_ROUTES.session) onSignedOut();
    return await readRefusal(response);
  } catch {
    // No connection, or one that ended before the whole answer was there.
    return { kind: "unreachable" };
  }
}

async function readBody<T>(response: Response): Promise<T> {
  const text = await response.text();
  return (text === "" ? null : JSON.parse(text)) as T;
}

export async function readRefusal<T>(response: Response): Promise<ApiResult<T>> {
  const { status } = response;
  try {
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    return { kind: "refused", status, code: String(error.code), message: String(error.message) };
  } catch {
    return { kind: "refused", status, code: `HTTP_${status}`, message: "the answer is not one of the control plane" };
  }
}

export const act = ({ method, path, body }: ActionRequest): Promise<ApiResult<unknown>> => ask(method, path, body);

export const read = <T>(
  name: keyof typeof BOARD_READS,
  target: Readonly<Record<string, string>> = {},
  query: Readonly<Record<string, string>> = {},
  signal?: AbortSignal,
): Promise<ApiResult<T>> => {
  const path = BOARD_READS[name].replaceAll(/:([a-z]+)/g, (_, part: string) => encodeURIComponent(target[part] ?? ""));
  const search = new URLSearchParams(query).toString();
  return ask("GET", search === "" ? path : `${path}?${search}`, null, signal);
};

/** In one line, with the code: what a person looks up, or sends to somebody. */
export const sayFailure = (result: Exclude<ApiResult<unknown>, { kind: "done" }>): string =>
  result.kind === "unreachable" ? "UNREACHABLE: the control plane did not answer" : `${result.code}: ${result.message}`;
