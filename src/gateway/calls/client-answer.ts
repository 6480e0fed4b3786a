import type { UpstreamSettings } from "../../contract/gateway-config.ts";
import { forwardResponseHeaders } from "../../decide/http/forward-headers.ts";
import { normaliseEngineError } from "../../decide/engines/engine-error.ts";
import type { EndpointChoice } from "../../decide/routing/choose-endpoint.ts";
import { renderErrorEvent } from "../../decide/sse/error-event.ts";
import type { StreamPlace } from "../../decide/sse/stream-watcher.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import type { Secret } from "../../kernel/secret.ts";
import type { RequestContext } from "../http/request-context.ts";
import { sendError } from "../http/send-error.ts";
import type { UpstreamHead } from "../upstream/port.ts";
import type { Endpoint } from "../upstreams/endpoint.ts";
import { answerHeaders, headerValue, type AnswerFacts } from "./answer-headers.ts";
import { ClientWriter } from "./client-writer.ts";

const NO_HEADERS: readonly string[] = [];

export interface ClientAnswerOptions {
  readonly context: RequestContext;
  readonly clock: Clock;
  readonly mode: "engine" | "http";
  readonly upstream: UpstreamSettings;
  readonly showsEndpoint: boolean;
  readonly onBlocked: () => void;
  readonly onDrained: () => void;
}

/**
 * What one client is told, in the form that its route and the moment ask for: a whole answer, a stream, a refusal as JSON while
 * nothing has been sent, an error event after that.
 */
export class ClientAnswer {
  readonly writer: ClientWriter;
  readonly #options: ClientAnswerOptions;
  /** As sent; 0 before. */
  status = 0;
  queueMs: number | null = null;
  endpoint: Endpoint | null = null;
  choice: EndpointChoice | null = null;

  constructor(options: ClientAnswerOptions) {
    this.#options = options;
    this.writer = new ClientWriter(options.context.res, options.onBlocked, options.onDrained);
  }

  /** A call may wait more than once. */
  addWait(ms: number): void {
    this.queueMs = (this.queueMs ?? 0) + ms;
  }

  get #engineKey(): Secret | null {
    return (this.endpoint ?? this.#options.upstream).engineKey;
  }

  /** The head of an answer that goes on piece by piece. False: the client can't be written to any more. */
  begin(head: UpstreamHead, contentLength: number | undefined): boolean {
    this.status = head.status;
    return this.writer.commit(head.status, answerHeaders(head.rawHeaders, this.#facts(false)), contentLength);
  }

  whole(head: UpstreamHead, body: Buffer): void {
    this.#sendWhole(head, body, false);
  }

  informational(status: number, rawHeaders: string[]): void {
    const headers = forwardResponseHeaders(rawHeaders, { mode: this.#options.mode, keepContentLength: false });
    this.writer.sendInformational(status, headers);
  }

  /** The engine's own error goes on as it is, in a shape that clients can read. */
  engineError(head: UpstreamHead, said: Buffer): void {
    // What the engine was given to let us in: it may repeat it in its errors, and no client may see it.
    const key = this.#engineKey;
    const masked = key?.isIn(said) === true;
    const body = masked ? Buffer.from(key.maskIn(said.toString("latin1")), "latin1") : said;
    const rawHeaders = key === null ? head.rawHeaders : withoutSecret(head.rawHeaders, key);
    const encoded = headerValue(rawHeaders, "content-encoding") !== undefined;
    const contentType = headerValue(rawHeaders, "content-type") ?? "";
    const normal =
      this.#options.mode === "http" || encoded
        ? null
        : normaliseEngineError({ status: head.status, contentType, body }, this.#options.context);
    this.#sendWhole({ ...head, rawHeaders }, normal === null ? body : Buffer.from(normal), normal !== null || masked);
  }

  /** A sign of life, or the place in the queue. The first one commits to a stream. */
  comment(text: string): void {
    if (!this.writer.committed) {
      this.status = 200;
      const headers = answerHeaders(["content-type", "text/event-stream; charset=utf-8"], this.#facts(false));
      if (!this.writer.commit(200, headers, undefined)) return;
    }
    this.writer.writePayload(Buffer.from(text));
  }

  /** A refusal, or a failure before anything of an answer came: JSON, or an event where comments have gone out already. */
  refuse(code: ErrorCode, said: string, retryAfterMs?: number): void {
    const message = this.#engineKey?.maskIn(said) ?? said;
    if (this.writer.committed) {
      this.writer.breakOff(this.#errorEvent(code, message, undefined));
      return;
    }
    const { context, upstream, clock } = this.#options;
    this.status = sendError(context, code, message, {
      dialect: context.dialect,
      requestId: context.requestId,
      clock,
      retryAfterMs,
      queueMs: this.queueMs,
      upstreamId: upstream.id,
      headers: context.hold?.headers,
    });
  }

  /**
   * Ends an answer that has begun so that nobody can take it for a whole one. `place`: where an event stream stands;
   * undefined for other bodies, which can only be cut. `completeFraming` closes a chunk of the engine's that is half sent.
   */
  breakOff(
    code: ErrorCode,
    message: string,
    place: StreamPlace | undefined,
    completeFraming: Buffer | undefined,
  ): void {
    if (place === undefined) {
      this.writer.breakOff(null);
      return;
    }
    if (completeFraming !== undefined && completeFraming.length > 0) this.writer.writeFramed(completeFraming);
    this.writer.breakOff(this.#errorEvent(code, message, place));
  }

  #sendWhole(head: UpstreamHead, body: Buffer, replacedBody: boolean): void {
    this.status = head.status;
    const headers = answerHeaders(head.rawHeaders, this.#facts(replacedBody));
    this.writer.sendWhole(head.status, headers, body);
  }

  #errorEvent(code: ErrorCode, said: string, place: StreamPlace | undefined): Buffer {
    const message = this.#engineKey?.maskIn(said) ?? said;
    const { context } = this.#options;
    const last = place?.lastSequenceNumber;
    return renderErrorEvent(context.dialect, code, message, place?.atBoundary ?? true, {
      requestId: context.requestId,
      sequence: last === undefined ? undefined : last + 1,
    });
  }

  #facts(replacedBody: boolean): AnswerFacts {
    const { context, mode, upstream, showsEndpoint } = this.#options;
    const { endpoint } = this;
    return {
      mode,
      requestId: context.requestId,
      queueMs: this.queueMs,
      upstreamId: upstream.id,
      endpoint: showsEndpoint ? endpoint : null,
      place:
        mode === "engine" || endpoint === null
          ? null
          : { origin: endpoint.target.origin, basePath: endpoint.basePath, prefix: `/upstreams/${upstream.id}` },
      choice: this.choice,
      limits: context.hold?.headers ?? NO_HEADERS,
      replacedBody,
    };
  }
}

function withoutSecret(raw: readonly string[], key: Secret): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const value = raw[i + 1] ?? "";
    if (key.maskIn(value) === value) kept.push(raw[i] ?? "", value);
  }
  return kept;
}
