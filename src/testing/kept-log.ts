import { systemClock, type Clock } from "../kernel/clock.ts";
import { BatchedLogger } from "../kernel/log.ts";

/** The log of a program under test; whoever reads it reads all that was said until then. */
export class KeptLog {
  readonly logger: BatchedLogger;
  readonly #lines: string[] = [];

  constructor(clock: Clock = systemClock) {
    this.logger = new BatchedLogger({
      clock,
      sink: { write: (text) => void this.#lines.push(...text.trimEnd().split("\n")) },
      level: "debug",
      format: "json",
    });
  }

  /** The same array each time; it grows. */
  get lines(): readonly string[] {
    this.logger.flush();
    return this.#lines;
  }

  get text(): string {
    return this.lines.map((line) => `${line}\n`).join("");
  }
}
