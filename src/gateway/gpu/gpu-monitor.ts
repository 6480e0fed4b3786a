import type { GpuHealthSettings, GpuSourceSettings } from "../../contract/gateway-config.ts";
import { formatListen } from "../../contract/listen-address.ts";
import { METRICS_ACCEPT } from "../../decide/engines/adapter.ts";
import type { GpuBook, Look } from "../../decide/gpu/gpu-book.ts";
import type { GpuPolicy } from "../../decide/gpu/gpu-policy.ts";
import { isGpuSignal, readGpuPage, type GpuSample } from "../../decide/gpu/gpu-sample.ts";
import { parseMetricsText } from "../../decide/telemetry/prometheus-text.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import { headerValue } from "../calls/answer-headers.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import { fetchText, type Fetched } from "../upstreams/fetch-text.ts";

export interface GpuMonitorDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly client: UpstreamClient;
  readonly book: GpuBook;
  readonly settings: () => GpuHealthSettings;
  readonly policy: () => GpuPolicy;
  /** A source was looked at, or could not be. */
  readonly onLook: () => void;
}

/** A page is asked for again before long, so that one that is slow is given up early. */
const PAGE_TIMEOUT_MS = 2_000;
const CONNECT_TIMEOUT_MS = 1_000;
/** Of wanted rows and bad lines: more than a thousand cards have, and what can be read between two of people's tokens. */
const ROWS_MAX = 20_000;
/** The first looks are spread over this time, or over the interval where that is shorter. */
const FIRST_LOOK_MS = 1_000;

/** Asks every source at its own pace: none waits for another. */
export class GpuMonitor {
  readonly #deps: GpuMonitorDeps;
  readonly #polls = new Map<string, SourcePoll>();

  constructor(deps: GpuMonitorDeps) {
    this.#deps = deps;
  }

  /** The whole list, as it should be from now on. */
  apply(sources: readonly GpuSourceSettings[]): void {
    const wanted = new Set(sources.map(keyOf));
    for (const [key, poll] of this.#polls) {
      if (wanted.has(key)) continue;
      poll.stop();
      this.#polls.delete(key);
      if (!sources.some(({ name }) => name === poll.source.name)) this.#deps.book.removeSource(poll.source.name);
    }
    for (const source of sources) {
      this.#deps.book.addSource(source.name);
      if (!this.#polls.has(keyOf(source))) this.#polls.set(keyOf(source), new SourcePoll(source, this.#deps));
    }
  }

  stop(): void {
    for (const poll of this.#polls.values()) poll.stop();
    this.#polls.clear();
  }
}

const keyOf = ({ name, host }: GpuSourceSettings): string => JSON.stringify([name, host]);

/** One source. Its page is asked for once at a time, whatever the source does with it. */
class SourcePoll {
  readonly source: GpuSourceSettings;
  readonly #deps: GpuMonitorDeps;
  #timer: Timer | undefined;
  #stopped = false;
  #asking = false;
  #state = "";

  constructor(source: GpuSourceSettings, deps: GpuMonitorDeps) {
    this.source = source;
    this.#deps = deps;
    this.#arm(deps.random.next() * Math.min(FIRST_LOOK_MS, deps.settings().pollMs));
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  #arm(ms: number): void {
    if (this.#stopped) return;
    this.#timer = this.#deps.clock.after(ms, () => {
      this.#arm(this.#deps.settings().pollMs * (0.9 + this.#deps.random.next() / 5));
      if (!this.#asking) void this.#ask();
    });
  }

  async #ask(): Promise<void> {
    const { clock, client, book, policy, onLook } = this.#deps;
    const { source } = this;
    this.#asking = true;
    const target = { ...source, connectTimeoutMs: CONNECT_TIMEOUT_MS };
    const host = formatListen({ host: source.hostname, port: source.port });
    const fetched = await fetchText(client, clock, target, source.path, {
      headers: ["host", host, "accept", METRICS_ACCEPT],
      timeoutMs: PAGE_TIMEOUT_MS,
    });
    this.#asking = false;
    if (this.#stopped) return;
    book.look(source.name, readLook(fetched, source), clock.mono(), policy());
    this.#note();
    onLook();
  }

  /** Said when it changes. */
  #note(): void {
    const now = this.#deps.book.source(this.source.name);
    if (now === undefined || now.state === this.#state) return;
    this.#state = now.state;
    this.#deps.log[now.state === "up" ? "info" : "warn"]("gpu.source", {
      source: this.source.name,
      state: now.state,
      why: now.why === "" ? null : now.why,
      hosts: now.hosts.slice(0, 8).join(" "),
    });
  }
}

function readLook(fetched: Fetched, source: GpuSourceSettings): Look {
  if (fetched.kind === "failed") {
    const state = fetched.failure === "tooLarge" ? "unreadable" : "down";
    return { kind: "failed", state, why: fetched.message };
  }
  if (fetched.status !== 200) return { kind: "failed", state: "down", why: `it answers ${fetched.status}` };
  // A page that calls itself OpenMetrics and lacks the end mark was cut.
  const contentType = headerValue(fetched.rawHeaders, "content-type") ?? "";
  const page = parseMetricsText(fetched.body, { want: isGpuSignal, maxSeries: ROWS_MAX, contentType });
  if (page.kind === "rejected") return { kind: "failed", state: "unreadable", why: `its page is ${WORDS[page.why]}` };
  const samples = readGpuPage(page.samples, source.host, source.hostname);
  if (samples.length === 0 && page.skippedLines > 0)
    return { kind: "failed", state: "unreadable", why: "no line of its page can be read" };
  const { body } = fetched;
  // An exporter that escapes no label writes the same bad line for ever: that must not hide that another card is gone.
  const mentions = ({ uuid }: GpuSample): boolean => uuid === null || body.includes(uuid);
  return { kind: "page", samples, whole: page.complete, ...(page.skippedLines > 0 ? { mentions } : {}) };
}

const WORDS = {
  tooLarge: "larger than 8 MiB",
  notMetrics: "no metrics page",
  tooManySeries: `of more than ${ROWS_MAX} rows`,
} as const;
