import type { Clock, Timer } from "../kernel/clock.ts";
import { withDeadline } from "../kernel/deadline.ts";
import type { Logger } from "../kernel/log.ts";
import { encodeSpans, type EndedSpan, type SpanKind } from "./otlp.ts";
import { type PostOutcome, postJson } from "./post-json.ts";
import type { SpanAttributes, TraceStats } from "./tracer.ts";

export interface ExporterOptions {
  readonly url: URL;
  readonly resource: SpanAttributes;
  /** Of all its spans. */
  readonly kind: SpanKind;
  readonly clock: Clock;
  readonly log: Logger;
}

const SPANS_MAX = 8_192;
const BATCH_MAX = 512;
const EXPORT_EVERY_MS = 1_000;
const POST_MS_MAX = 10_000;
const CLOSE_MS_MAX = 3_000;
const TRIES = 4;
const BACKOFF_MS = 1_000;
const BACKOFF_MS_MAX = 30_000;
/** What OTLP/HTTP says may be sent again. */
const RETRYABLE = new Set([429, 502, 503, 504]);

type Sent =
  | { readonly kind: "done"; readonly rejected: number }
  | { readonly kind: "again"; readonly waitMs: number; readonly why: string }
  | { readonly kind: "refused"; readonly why: string };

/**
 * Sends ended spans to a collector.
 *
 * Invariants:
 *   E1. `add` is constant time. One POST at a time, from a timer, never from the request path.
 *   E2. At most SPANS_MAX spans are held, those being sent included; what does not fit is dropped and counted.
 *   E3. Every span ends in exactly one of the counts: exported or dropped.
 */
export class OtlpExporter {
  readonly #options: ExporterOptions;
  readonly #stop = new AbortController();
  #held: EndedSpan[] = [];
  #sending = 0;
  #exported = 0;
  #dropped = 0;
  #timer: Timer | undefined;
  #running: Promise<void> | undefined;
  #failing = false;
  #closing = false;

  constructor(options: ExporterOptions) {
    this.#options = options;
  }

  add(span: EndedSpan): void {
    if (this.#closing || this.#held.length + this.#sending >= SPANS_MAX) {
      this.#dropped += 1;
      return;
    }
    this.#held.push(span);
    this.#timer ??= this.#options.clock.after(EXPORT_EVERY_MS, () => this.#start());
  }

  stats(): TraceStats {
    return { exported: this.#exported, dropped: this.#dropped, pending: this.#held.length + this.#sending };
  }

  async close(): Promise<void> {
    this.#closing = true;
    const limit = this.#options.clock.after(CLOSE_MS_MAX, () => this.#stop.abort(new Error("the process stops")));
    await this.#running;
    this.#start();
    await this.#running;
    limit.cancel();
  }

  #start(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    // Spans that come while a batch is sent are picked up by the loop that sends it.
    this.#running ??= this.#drain().finally(() => (this.#running = undefined));
  }

  async #drain(): Promise<void> {
    while (this.#held.length > 0) {
      const batch = this.#held.splice(0, BATCH_MAX);
      this.#sending = batch.length;
      const rejected = await this.#deliver(batch);
      this.#sending = 0;
      this.#dropped += rejected;
      this.#exported += batch.length - rejected;
    }
  }

  /** Returns how many spans of the batch the collector does not have. */
  async #deliver(batch: readonly EndedSpan[]): Promise<number> {
    const { url } = this.#options;
    const body = encodeSpans(batch, this.#options.resource, this.#options.kind);
    for (let attempt = 1; ; attempt += 1) {
      const sent = await this.#post(body, attempt);
      if (sent.kind === "done") {
        if (this.#failing) this.#options.log.info("trace.recovered", { dropped: this.#dropped });
        this.#failing = false;
        return sent.rejected;
      }
      if (!this.#failing)
        this.#options.log.warn("trace.exportFailed", { url: `${url.origin}${url.pathname}`, why: sent.why });
      this.#failing = true;
      if (sent.kind === "refused" || attempt >= TRIES || this.#stop.signal.aborted) return batch.length;
      await this.#options.clock.sleep(sent.waitMs, this.#stop.signal).catch(() => {}); // Aborted: one last try fails at once.
    }
  }

  async #post(body: string, attempt: number): Promise<Sent> {
    using deadline = withDeadline(this.#options.clock, POST_MS_MAX, this.#stop.signal);
    return judge(
      await postJson(this.#options.url, body, deadline.signal),
      Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** (attempt - 1)),
    );
  }
}

function judge(outcome: PostOutcome, backoffMs: number): Sent {
  if (outcome.kind === "failed") return { kind: "again", waitMs: backoffMs, why: outcome.why };
  const { status, retryAfterS } = outcome;
  if (status >= 200 && status < 300) return { kind: "done", rejected: rejectedSpans(outcome.body) };
  const why = `the collector answered ${status}`;
  if (!RETRYABLE.has(status)) return { kind: "refused", why };
  return {
    kind: "again",
    waitMs: retryAfterS === undefined ? backoffMs : Math.min(BACKOFF_MS_MAX, retryAfterS * 1000),
    why,
  };
}

/** A collector may take a batch in part. An answer that can't be read means that it took all. */
function rejectedSpans(body: string): number {
  try {
    const answer = JSON.parse(body) as { partialSuccess?: { rejectedSpans?: string | number } };
    const rejected = Number(answer.partialSuccess?.rejectedSpans ?? 0);
    return Number.isSafeInteger(rejected) && rejected > 0 ? rejected : 0;
  } catch {
    return 0;
  }
}
