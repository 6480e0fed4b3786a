import { renderErrorBody, type Dialect } from "../../contract/error-body.ts";
import { renderRetryAfter } from "../../decide/http/retry-after.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import { ERRORS, YardmasterError, type ErrorCode } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { BodyReader, ClientReply, ClientRequest } from "./client-port.ts";
import { bodyLength } from "./request-body.ts";
import type { RequestContext } from "./request-context.ts";

export interface ErrorFacts {
  readonly dialect: Dialect;
  readonly requestId: string;
  /** Bounds how long the rest of a refused body is taken in. */
  readonly clock: Clock;
  readonly param?: string | undefined;
  /** For codes that carry `Retry-After`; absent: one second. */
  readonly retryAfterMs?: number | undefined;
  readonly queueMs?: number | null | undefined;
  readonly upstreamId?: string | undefined;
  readonly allow?: string | undefined;
  /** Further headers of the refusal; a flat list. */
  readonly headers?: readonly string[] | undefined;
}

/** Bytes of an unread request body that are taken in and thrown away, so that the client comes to read the answer. */
const LINGERING_BYTES_MAX = 64 * 1024 * 1024;
const UNREAD_BYTES_KEPT = 64 * 1024;
const NO_TRAILERS: readonly string[] = [];
const LINGERING_IDLE_MS_MAX = 2_000;
const LINGERING_MS_MAX = 30_000;
/** For a client that was refused because it sends too slowly. */
const LINGERING_SLOW_MS_MAX = 500;

/**
 * Answers with a refusal; returns its status. Nothing happens when the answer has begun or the client is gone. A request that
 * would be refused again ends its connection, so that nothing behind it is taken for a fresh start; where the client should
 * only wait the connection lives on, which keeps overload cheap.
 */
export function sendError(
  { req, res }: { readonly req: ClientRequest; readonly res: ClientReply },
  code: ErrorCode,
  message: string,
  facts: ErrorFacts,
): number {
  const { status, text } = renderErrorBody(code, message, facts);
  if (res.begun || res.gone) return status;
  const rule: { readonly retry: string; readonly retryAfter?: boolean } = ERRORS[code];
  const headers = ["content-type", "application/json", "x-request-id", facts.requestId];
  if (rule.retryAfter === true) headers.push("retry-after", renderRetryAfter(facts.retryAfterMs ?? 1_000));
  if (facts.queueMs !== null && facts.queueMs !== undefined)
    headers.push("x-yardmaster-queue-ms", String(Math.round(facts.queueMs)));
  if (facts.upstreamId !== undefined) headers.push("x-yardmaster-upstream", facts.upstreamId);
  if (facts.allow !== undefined && facts.allow !== "") headers.push("allow", facts.allow);
  headers.push(...(facts.headers ?? []));
  if (code === "UNAUTHORIZED") headers.push("www-authenticate", 'Bearer realm="yardmaster"');
  const unread = unreadBytes(req);
  const closes =
    rule.retry === "never" || code === "DRAINING" || code === "REQUEST_TIMEOUT" || unread > UNREAD_BYTES_KEPT;
  if (closes) headers.push("connection", "close");
  if (!closes || unread === 0) res.sendWhole(status, headers, text, code);
  else {
    const body = Buffer.from(text);
    if (!res.begin(status, headers, body.length)) return status;
    res.writePayload(body);
    const msMax = code === "REQUEST_TIMEOUT" ? LINGERING_SLOW_MS_MAX : LINGERING_MS_MAX;
    req.readBody(new Lingering(res, facts.clock, msMax));
  }
  return status;
}

/**
 * Answers with what a handler threw: an error of ours as it is, anything else as INTERNAL, with its words in the log alone. As
 * `sendError`, it says nothing where the answer has begun.
 */
export function sendFailure(
  context: RequestContext,
  error: unknown,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
  facts: Pick<ErrorFacts, "param" | "retryAfterMs" | "upstreamId" | "headers"> = {},
): { readonly code: ErrorCode; readonly status: number } {
  const { requestId, dialect } = context;
  const known = error instanceof YardmasterError;
  if (!known)
    log.error("request.internal", {
      request: requestId,
      route: context.route.pattern,
      message: error instanceof Error ? error.message : String(error),
    });
  const code = known ? error.code : "INTERNAL";
  const message = known ? error.message : "a fault in the gateway; the log has this request id";
  return { code, status: sendError(context, code, message, { ...facts, dialect, requestId, clock }) };
}

/** How much of a body may still come, at most. A small rest is read and thrown away by the server itself. */
function unreadBytes(req: ClientRequest): number {
  if (req.complete) return 0;
  const length = bodyLength(req.rawHeaders);
  return length === "unknown" ? Infinity : length === "none" ? 0 : length;
}

/** Whether so much of the body is left that the connection is not worth keeping. */
export const hasUnreadBody = (req: ClientRequest): boolean => unreadBytes(req) > UNREAD_BYTES_KEPT;

/**
 * A client that is still sending would get a reset, and never see the answer, if the connection were closed now. So the
 * answer goes out and the rest of the body is thrown away for a bounded time and size before the answer ends.
 */
class Lingering implements BodyReader {
  readonly #res: ClientReply;
  readonly #clock: Clock;
  readonly #limit: Timer;
  #idle: Timer;
  #lastAt: MonoMs;
  #bytes = 0;

  constructor(res: ClientReply, clock: Clock, msMax: number) {
    this.#res = res;
    this.#clock = clock;
    this.#lastAt = clock.mono();
    this.#limit = clock.after(msMax, this.#finish);
    this.#idle = clock.after(LINGERING_IDLE_MS_MAX, this.#onIdle);
  }

  onData(chunk: Buffer): void {
    this.#lastAt = this.#clock.mono();
    this.#bytes += chunk.length;
    if (this.#bytes > LINGERING_BYTES_MAX) this.#finish();
  }

  onEnd(): void {
    this.#finish();
  }

  onBroken(): void {
    this.#finish();
  }

  readonly #onIdle = (): void => {
    const left = this.#lastAt + LINGERING_IDLE_MS_MAX - this.#clock.mono();
    if (left <= 0) this.#finish();
    else this.#idle = this.#clock.after(left, this.#onIdle);
  };

  readonly #finish = (): void => {
    this.#limit.cancel();
    this.#idle.cancel();
    this.#res.end(NO_TRAILERS);
  };
}
