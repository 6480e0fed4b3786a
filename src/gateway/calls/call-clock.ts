import { KIND_TRAITS } from "../../contract/kind-traits.ts";
import { nextCallDeadline, type CallLimit, type CallTimes } from "../../decide/calls/call-deadlines.ts";
import { asMono, type Clock, type MonoMs } from "../../kernel/clock.ts";
import type { Deadline, TimerWheel } from "../../kernel/timer-wheel.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { WaitingNotes } from "./waiting-notes.ts";

/** All that one call does by time: its limits while it is on an engine, and the notes that a waiting client gets. */
export class CallClock implements CallTimes {
  readonly #clock: Clock;
  readonly #wheel: TimerWheel;
  readonly #upstream: Upstream;
  readonly #onLimit: (limit: CallLimit) => void;
  readonly deadline: MonoMs | undefined;
  startedAt: MonoMs;
  firstEventAt: MonoMs | undefined;
  lastProgressAt: MonoMs | undefined;
  atWorkAt: MonoMs | undefined;
  blockedAt: MonoMs | undefined;
  notes: WaitingNotes | null = null;
  #running = false;
  #timer: Deadline | undefined;

  constructor(
    { clock, wheel }: { readonly clock: Clock; readonly wheel: TimerWheel },
    upstream: Upstream,
    deadline: MonoMs | undefined,
    now: MonoMs,
    onLimit: (limit: CallLimit) => void,
  ) {
    this.#clock = clock;
    this.#wheel = wheel;
    this.#upstream = upstream;
    this.deadline = deadline;
    this.#onLimit = onLimit;
    this.startedAt = now;
  }

  /** The call has its slot. `pausedMs`: it ran before, and the wait since then counts for none of its limits. */
  begin(now: MonoMs, pausedMs: number | null): void {
    this.startedAt = pausedMs === null ? now : asMono(this.startedAt + pausedMs);
    this.#running = true;
    this.notes?.leaveQueue();
  }

  /** It waits for a slot again. */
  pause(): void {
    this.#running = false;
  }

  /** Called after anything that may bring a limit nearer; one that moves away is seen when it comes up. */
  schedule(): void {
    const notesAt = this.notes?.nextAt ?? Number.POSITIVE_INFINITY;
    const at = this.#running ? Math.min(nextCallDeadline(this, this.#upstream.settings.timeouts).at, notesAt) : notesAt;
    if (at === Number.POSITIVE_INFINITY) return;
    if (this.#timer !== undefined && this.#timer.bucket >= 0) this.#wheel.move(this.#timer, asMono(at));
    else this.#timer = this.#wheel.add(asMono(at), this.#onTimer);
  }

  stop(): void {
    if (this.#timer !== undefined) this.#wheel.remove(this.#timer);
    this.#running = false;
    this.notes = null;
  }

  /** The engine says that it is at work. Where that is all that comes for hours, its word is what the first byte is waited for by. */
  atWork(): MonoMs {
    const now = this.#clock.mono();
    if (KIND_TRAITS[this.#upstream.settings.kind].saysAtWork) this.atWorkAt = now;
    return now;
  }

  /** The client takes nothing: bytes wait for it. */
  blocked(): void {
    this.blockedAt = this.#clock.mono();
    this.schedule();
  }

  /** The client takes again. What the engine did not send meanwhile was held back by us. */
  drained(): void {
    this.blockedAt = undefined;
    if (this.lastProgressAt !== undefined) this.lastProgressAt = this.#clock.mono();
  }

  readonly #onTimer = (now: MonoMs): void => {
    this.#timer = undefined;
    if (this.#running) {
      const due = nextCallDeadline(this, this.#upstream.settings.timeouts);
      if (now >= due.at) {
        this.#onLimit(due.limit);
        return;
      }
    }
    this.notes?.tick(now);
    this.schedule();
  };
}
