import type { RequestClass } from "../contract/request-class.ts";
import { averageLate, shedClasses } from "../decide/admission/loop-shed.ts";
import type { Clock, Timer } from "../kernel/clock.ts";
import type { Logger } from "../kernel/log.ts";

/** Rare enough to cost an idle gateway nothing, often enough to see trouble within a second. */
const LOOK_MS = 250;

/** Watches how late the event loop is, and says which classes are to be refused for it. Logs when that changes. */
export class LoopWatch implements Disposable {
  readonly #clock: Clock;
  readonly #log: Logger;
  #timer: Timer;
  #averageMs = 0;
  #lastMs = 0;
  #shed: readonly RequestClass[] = [];

  constructor(clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#log = log;
    this.#timer = this.#arm();
  }

  sheds(requestClass: RequestClass): boolean {
    return this.#shed.includes(requestClass);
  }

  [Symbol.dispose](): void {
    this.#timer.cancel();
  }

  #arm(): Timer {
    const from = this.#clock.mono();
    return this.#clock.after(LOOK_MS, () => {
      const elapsedMs = this.#clock.mono() - from;
      const lateMs = Math.max(0, elapsedMs - LOOK_MS);
      this.#averageMs = averageLate(this.#averageMs, lateMs, elapsedMs);
      // One late look alone is a pause that is over (a suspended machine, one long turn), not work that piles up.
      const pressureMs = Math.min(this.#averageMs, lateMs, this.#lastMs);
      this.#lastMs = lateMs;
      const shed = shedClasses(pressureMs);
      if (shed.length !== this.#shed.length) {
        this.#log[shed.length === 0 ? "info" : "warn"]("gateway.shedding", {
          classes: shed.join(" "),
          event_loop_late_ms: Math.round(pressureMs),
        });
      }
      this.#shed = shed;
      this.#timer = this.#arm();
    });
  }
}
