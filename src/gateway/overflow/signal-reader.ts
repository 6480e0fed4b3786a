import type { OverflowRules } from "../../contract/overflow-settings.ts";
import { parseEndpointUrl } from "../../contract/resolve-config.ts";
import { judgeSignal, type SignalInput, type SignalReading } from "../../decide/overflow/judge-signal.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import { fetchText } from "../upstreams/fetch-text.ts";

export interface SignalReaderDeps {
  readonly clock: Clock;
  readonly client: UpstreamClient;
  /** 0 to 100; null: nobody measured the card of this name of late. */
  readonly utilization: (gpu: string) => number | null;
  readonly depth: () => Promise<number | null>;
  readonly queueP90S: () => number | null;
}

type Page = SignalInput["page"];
const NO_PAGE: Page = { kind: "page", json: null };

/**
 * Reads the signals of one upstream, all at once, each within its time.
 *
 * Invariants:
 *   R1. Never rejects: what goes wrong is a broken signal.
 *   R2. Looks that are asked for while one is under way, or soon after it, share it; `anew` makes one of its own.
 */
export class SignalReader {
  readonly #deps: SignalReaderDeps;
  #last: { readonly at: MonoMs; readonly rules: OverflowRules; readonly readings: Promise<SignalReading[]> } | null =
    null;

  constructor(deps: SignalReaderDeps) {
    this.#deps = deps;
  }

  read(rules: OverflowRules, anew: boolean): Promise<readonly SignalReading[]> {
    const now = this.#deps.clock.mono();
    const last = this.#last;
    if (!anew && last !== null && last.rules === rules && now - last.at <= rules.signalMemoryMs) return last.readings;
    const readings = this.#readAll(rules);
    this.#last = { at: now, rules, readings };
    return readings;
  }

  async #readAll(rules: OverflowRules): Promise<SignalReading[]> {
    const { signals, signalTimeoutMs } = rules;
    const depth = signals.some(({ kind }) => kind === "queue_depth") ? await this.#depth() : null;
    return Promise.all(
      signals.map(async (signal) =>
        judgeSignal(signal, {
          page: "url" in signal ? await this.#page(signal.url, signalTimeoutMs) : NO_PAGE,
          utilization: signal.kind === "gpu_util_with_backlog" ? this.#deps.utilization(signal.gpu) : null,
          depth,
          queueP90S: signal.kind === "queue_time_p90_s" ? this.#deps.queueP90S() : null,
        }),
      ),
    );
  }

  async #depth(): Promise<number | null> {
    try {
      return await this.#deps.depth();
    } catch {
      return null;
    }
  }

  async #page(url: string, timeoutMs: number): Promise<Page> {
    const address = parseEndpointUrl(url);
    if (address === undefined) return { kind: "failed", why: "the address can't be read" };
    const { origin, protocol, hostname, port, basePath } = address;
    const { client, clock } = this.#deps;
    const target = { origin, protocol, hostname, port, connectTimeoutMs: timeoutMs };
    const headers = ["host", hostname.includes(":") ? `[${hostname}]:${port}` : `${hostname}:${port}`];
    const fetched = await fetchText(client, clock, target, basePath === "" ? "/" : basePath, { headers, timeoutMs });
    if (fetched.kind === "failed") return { kind: "failed", why: fetched.message };
    if (fetched.status !== 200) return { kind: "failed", why: `the page answered ${fetched.status}` };
    try {
      return { kind: "page", json: JSON.parse(fetched.body) };
    } catch {
      return { kind: "page", json: undefined };
    }
  }
}
