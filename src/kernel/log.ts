import { isoTime, type Clock, type EpochMs } from "./clock.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";
export const LOG_LEVELS: readonly LogLevel[] = ["debug", "info", "warn", "error"];
export type LogFields = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Logger {
  /** `op` is `noun.verb`; fields are flat. Never put a key, a prompt or a request header in a field. */
  debug(op: string, fields?: LogFields): void;
  info(op: string, fields?: LogFields): void;
  warn(op: string, fields?: LogFields): void;
  error(op: string, fields?: LogFields): void;
}

export interface LogSink {
  write(text: string): void;
}

const FLUSH_MS = 50;
/** Lines held while the sink is not written to; beyond it lines are counted, not kept, so a stuck terminal can't fill the memory. */
const HELD_LINES_MAX = 10_000;

/** C0 and C1 controls, DEL, and bidirectional overrides: an engine's text must not move a reader's cursor or reorder a line. */
// oxlint-disable-next-line no-control-regex -- control characters are what it looks for
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;
export const escapeControls = (text: string): string =>
  text.replace(UNSAFE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);

function pretty(level: LogLevel, wall: EpochMs, op: string, fields: LogFields): string {
  const parts = [isoTime(wall), level.toUpperCase().padEnd(5), op];
  for (const [key, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    const text = escapeControls(String(value));
    parts.push(`${key}=${/[\s"=]/.test(text) || text === "" ? JSON.stringify(text) : text}`);
  }
  return parts.join(" ");
}

/**
 * Lines are batched and written off the hot path; `flush` writes what is held, and is called before the process ends.
 */
export class BatchedLogger implements Logger {
  readonly #minimum: number;
  #lines: string[] = [];
  #lost = 0;
  #lostTotal = 0;
  #scheduled = false;
  readonly #clock: Clock;
  readonly #sink: LogSink;
  readonly #format: "pretty" | "json";

  constructor(options: { clock: Clock; sink: LogSink; level: LogLevel; format: "pretty" | "json" }) {
    this.#clock = options.clock;
    this.#sink = options.sink;
    this.#format = options.format;
    this.#minimum = LOG_LEVELS.indexOf(options.level);
  }

  /** Lines lost since the start; for the metric. */
  get lostTotal(): number {
    return this.#lostTotal;
  }

  debug(op: string, fields: LogFields = {}): void {
    this.#add("debug", op, fields);
  }

  info(op: string, fields: LogFields = {}): void {
    this.#add("info", op, fields);
  }

  warn(op: string, fields: LogFields = {}): void {
    this.#add("warn", op, fields);
  }

  error(op: string, fields: LogFields = {}): void {
    this.#add("error", op, fields);
  }

  flush(): void {
    this.#scheduled = false;
    const lines = this.#lines;
    this.#lines = [];
    if (this.#lost > 0) lines.push(this.#line("warn", "log.lost", { lines: this.#lost }));
    this.#lost = 0;
    if (lines.length > 0) this.#sink.write(`${lines.join("\n")}\n`);
  }

  #add(level: LogLevel, op: string, fields: LogFields): void {
    if (LOG_LEVELS.indexOf(level) < this.#minimum) return;
    if (this.#lines.length >= HELD_LINES_MAX) {
      this.#lost += 1;
      this.#lostTotal += 1;
      return;
    }
    this.#lines.push(this.#line(level, op, fields));
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#clock.after(FLUSH_MS, () => this.flush());
  }

  #line(level: LogLevel, op: string, fields: LogFields): string {
    const wall = this.#clock.wall();
    if (this.#format === "pretty") return pretty(level, wall, op, fields);
    // JSON leaves C1 controls and line separators as they are; as escapes they read as the same text.
    return escapeControls(JSON.stringify({ time: isoTime(wall), level, op, ...fields }));
  }
}

export const silentLogger: Logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
