import type { RequestContext } from "./request-context.ts";

/** An answer that is made for this one request. */
export function sendJson(
  context: RequestContext,
  status: number,
  value: unknown,
  headers: readonly string[] = [],
): void {
  const { requestId, res } = context;
  const own = ["content-type", "application/json", "cache-control", "no-store", "x-request-id", requestId];
  res.sendWhole(status, [...own, ...headers], JSON.stringify(value));
}
