import { Session, type Profiler } from "node:inspector";

type Span = readonly [from: number, to: number];

/**
 * Which code ran, by V8's counters of blocks. They tell what of a function did not run, and leave out a block that ran as often as what is
 * around it; so what is kept of each function is what of it has never run.
 */
export class Coverage implements Disposable {
  readonly #session = new Session();
  readonly #never = new Map<string, readonly Span[]>();
  readonly #within: string;

  /** `within`: a part of the paths of the files that count. */
  constructor(within = "/src/") {
    this.#within = within;
    this.#session.connect();
    this.#session.post("Profiler.enable");
    this.#session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  }

  /** Functions that ran. */
  get functions(): number {
    return this.#never.size;
  }

  /** Forgets what ran since the last look. */
  skip(): void {
    this.#taken();
  }

  /** Whether something ran since the last look that never ran before. `keep`: it counts as seen from now on. */
  news(keep: boolean): boolean {
    let fresh = false;
    for (const { url, functions } of this.#taken()) {
      if (!url.includes(this.#within)) continue;
      for (const { ranges } of functions) {
        const [whole, ...blocks] = ranges;
        if (whole === undefined || whole.count === 0) continue;
        const name = `${url} ${whole.startOffset} ${whole.endOffset}`;
        const idle = blocks
          .filter(({ count }) => count === 0)
          .map(({ startOffset, endOffset }): Span => [startOffset, endOffset]);
        const before = this.#never.get(name);
        const never = before === undefined ? idle : common(before, idle);
        if (before !== undefined && length(never) === length(before)) continue;
        fresh = true;
        if (keep) this.#never.set(name, never);
      }
    }
    return fresh;
  }

  /** A session in this thread answers before `post` returns. */
  #taken(): readonly Profiler.ScriptCoverage[] {
    let result: readonly Profiler.ScriptCoverage[] = [];
    this.#session.post("Profiler.takePreciseCoverage", (error, answer) => {
      if (error === null) ({ result } = answer);
    });
    return result;
  }

  [Symbol.dispose](): void {
    this.#session.post("Profiler.stopPreciseCoverage");
    this.#session.disconnect();
  }
}

const length = (spans: readonly Span[]): number => spans.reduce((sum, [from, to]) => sum + to - from, 0);

/** What lies in both. */
function common(a: readonly Span[], b: readonly Span[]): Span[] {
  return a.flatMap(([from, to]) =>
    b.flatMap(([start, end]): Span[] => {
      const span: Span = [Math.max(from, start), Math.min(to, end)];
      return span[0] < span[1] ? [span] : [];
    }),
  );
}
