import type { Upstream } from "../upstreams/upstream.ts";
import type { ClientAnswer } from "./client-answer.ts";
import type { PreparedRequest } from "./prepared-request.ts";
import { asMono, type MonoMs } from "../../kernel/clock.ts";

/**
 * The comments that a streaming client gets while nothing else comes: its place in the queue where it asked for it, and a
 * sign of life at the operator's interval. A place told once never gets worse.
 */
export interface WaitingNotesOptions {
  readonly queueEvents: boolean;
  readonly keepaliveMs: number | null;
  readonly position: () => number | undefined;
  readonly estimatedWaitMs: () => number | undefined;
  readonly write: (comment: string) => void;
}

const QUEUE_EVENT_MS = 1_000;

export class WaitingNotes {
  readonly #options: WaitingNotesOptions;
  #lastPosition = Number.POSITIVE_INFINITY;
  #keepaliveAt: number;
  #queueEventAt: number;

  constructor(options: WaitingNotesOptions, now: MonoMs) {
    this.#options = options;
    this.#keepaliveAt = options.keepaliveMs === null ? Number.POSITIVE_INFINITY : now + options.keepaliveMs;
    this.#queueEventAt = options.queueEvents ? now : Number.POSITIVE_INFINITY;
  }

  get nextAt(): MonoMs {
    return asMono(Math.min(this.#keepaliveAt, this.#queueEventAt));
  }

  /** The slot is there: only signs of life from here on. */
  leaveQueue(): void {
    this.#queueEventAt = Number.POSITIVE_INFINITY;
  }

  /** The engine's own bytes have begun. */
  stop(): void {
    this.#keepaliveAt = Number.POSITIVE_INFINITY;
    this.#queueEventAt = Number.POSITIVE_INFINITY;
  }

  tick(now: MonoMs): void {
    if (now >= this.#queueEventAt) {
      this.#queueEventAt = now + QUEUE_EVENT_MS;
      const position = Math.min(this.#lastPosition, this.#options.position() ?? this.#lastPosition);
      if (position < this.#lastPosition) {
        this.#lastPosition = position;
        const wait = this.#options.estimatedWaitMs();
        this.#say(
          `: queue position=${position} estimated_wait_s=${wait === undefined ? "-" : Math.ceil(wait / 1000)}\n\n`,
          now,
        );
      }
    }
    if (now >= this.#keepaliveAt) this.#say(": keep-alive\n\n", now);
  }

  #say(comment: string, now: MonoMs): void {
    if (this.#options.keepaliveMs !== null) this.#keepaliveAt = now + this.#options.keepaliveMs;
    this.#options.write(comment);
  }
}

/** For streams whose client, or operator, wants to hear something while nothing comes; null for all others. */
export function notesFor(
  request: PreparedRequest,
  upstream: Upstream,
  callId: number,
  answer: ClientAnswer,
  now: MonoMs,
): WaitingNotes | null {
  const keepaliveMs = upstream.settings.sseKeepaliveMs;
  if (!request.wantsStream || (!request.wantsQueueEvents && keepaliveMs === null)) return null;
  return new WaitingNotes(
    {
      queueEvents: request.wantsQueueEvents,
      keepaliveMs,
      position: () => upstream.pool.position(callId),
      estimatedWaitMs: () => upstream.pool.estimatedWaitMs(callId),
      write: (comment) => answer.comment(comment),
    },
    now,
  );
}
