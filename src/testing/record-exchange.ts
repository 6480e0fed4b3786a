import type {
  PayloadSpans,
  UpstreamClient,
  UpstreamError,
  UpstreamExchange,
  UpstreamHandler,
  UpstreamHead,
  UpstreamRequest,
  UpstreamTarget,
} from "../gateway/upstream/port.ts";

export type ExchangeEnd =
  | { readonly kind: "end"; readonly trailers: readonly string[] }
  | { readonly kind: "error"; readonly error: UpstreamError };

export interface RecorderOptions {
  /** What `onHead` answers. */
  readonly chunks?: boolean;
  readonly onHead?: (recorder: ExchangeRecorder) => void;
  /** What `onData` returns. */
  readonly onData?: (recorder: ExchangeRecorder) => boolean;
  readonly onChunks?: (recorder: ExchangeRecorder) => void;
  readonly onDone?: (recorder: ExchangeRecorder) => void;
}

/** A handler that keeps all it was told, and fails the test when it is told something out of order. */
export class ExchangeRecorder implements UpstreamHandler {
  readonly informational: { readonly status: number; readonly rawHeaders: string[] }[] = [];
  head: UpstreamHead | undefined;
  /** Payload, however it came. */
  readonly parts: Buffer[] = [];
  /** Framing and payload as `onChunks` gave it. */
  readonly raw: Buffer[] = [];
  end: ExchangeEnd | undefined;
  exchange: UpstreamExchange | undefined;
  /** Broken rules of the port. */
  readonly violations: string[] = [];
  readonly ended: Promise<ExchangeEnd>;
  aborted = false;
  readonly #options: RecorderOptions;
  #resolve: (end: ExchangeEnd) => void = () => {};

  constructor(options: RecorderOptions = {}) {
    this.#options = options;
    this.ended = new Promise((resolve) => (this.#resolve = resolve));
  }

  get payload(): Buffer {
    return Buffer.concat(this.parts);
  }

  abort(): void {
    this.aborted = true;
    this.exchange?.abort();
  }

  onInformational(status: number, rawHeaders: string[]): void {
    this.#check(this.head === undefined, "informational after the head");
    this.informational.push({ status, rawHeaders });
  }

  onHead(head: UpstreamHead): boolean {
    this.#check(this.head === undefined, "two heads");
    this.head = head;
    this.#options.onHead?.(this);
    return this.#options.chunks === true;
  }

  onData(payload: Buffer): boolean {
    this.#check(this.head !== undefined, "data before the head");
    this.#check(payload.length > 0, "empty data");
    this.parts.push(Buffer.from(payload));
    return this.#options.onData?.(this) ?? true;
  }

  onChunks(raw: Buffer, spans: PayloadSpans): "done" | "retained" {
    this.#check(this.head?.framing === "chunked" && this.#options.chunks === true, "chunks unasked");
    this.raw.push(Buffer.from(raw));
    for (let i = 0; i < spans.count; i += 2) {
      const [start = -1, end = -1] = [spans.offsets[i], spans.offsets[i + 1]];
      this.#check(start >= 0 && start < end && end <= raw.length, `span ${start}-${end} of ${raw.length}`);
      this.parts.push(Buffer.from(raw.subarray(start, end)));
    }
    this.#options.onChunks?.(this);
    return "done";
  }

  onEnd(trailers: readonly string[]): void {
    this.#check(this.head !== undefined, "end before the head");
    this.#finish({ kind: "end", trailers });
  }

  onError(error: UpstreamError): void {
    this.#finish({ kind: "error", error });
  }

  #finish(end: ExchangeEnd): void {
    this.#check(this.end === undefined, "ended twice");
    this.end = end;
    this.#options.onDone?.(this);
    this.#resolve(end);
  }

  #check(holds: boolean, rule: string): void {
    if (!holds) this.violations.push(rule);
    if (this.exchange === undefined) this.violations.push("called inside exchange()");
    if (this.end !== undefined) this.violations.push("called after the end");
    if (this.aborted) this.violations.push("called after abort()");
  }
}

export const aTarget = (port: number, more: Partial<UpstreamTarget> = {}): UpstreamTarget => ({
  origin: `http://127.0.0.1:${port}`,
  protocol: "http:",
  hostname: "127.0.0.1",
  port,
  connectTimeoutMs: 5_000,
  ...more,
});

export const aRequest = (path: string, more: Partial<UpstreamRequest> = {}): UpstreamRequest => ({
  method: "GET",
  path,
  headers: ["Host", "engine"],
  body: [],
  bodyBytes: undefined,
  freshConnection: false,
  ...more,
});

export const aPost = (path: string, body: Buffer | readonly Buffer[]): UpstreamRequest => {
  const parts = Array.isArray(body) ? (body as readonly Buffer[]) : [body as Buffer];
  return aRequest(path, { method: "POST", body: parts, bodyBytes: parts.reduce((sum, part) => sum + part.length, 0) });
};

export function startExchange(
  client: UpstreamClient,
  target: UpstreamTarget,
  request: UpstreamRequest,
  options: RecorderOptions = {},
): ExchangeRecorder {
  const recorder = new ExchangeRecorder(options);
  recorder.exchange = client.exchange(target, request, recorder);
  return recorder;
}
