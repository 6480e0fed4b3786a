import type { HistoryReading, OutputFile, QueueReading } from "./prompt-pages.ts";

/**
 * One prompt's way through ComfyUI after it was taken, as looks at it tell.
 *
 * Invariants:
 *   W1. It ends once, and by what ComfyUI's history says, or by its loss: never by a message of the socket.
 *   W2. It ends well only with something that the workflow gave.
 *   W3. Lost is what two looks in a row found neither in the history nor in the queue: between the two pages of one look a prompt
 *       may move from one to the other.
 *   W4. Looks that told nothing for BLIND_MS_MAX end it: a ComfyUI that can't be asked is as good as gone.
 */
export type WatchStep =
  | { readonly kind: "wait"; readonly ms: number }
  | { readonly kind: "succeeded"; readonly files: readonly OutputFile[]; readonly outputs: string }
  /** `again`: another try may do better. */
  | { readonly kind: "failed"; readonly why: string; readonly again: boolean }
  | { readonly kind: "lost"; readonly why: string };

export const BLIND_MS_MAX = 60_000;
const LOOK_MS_FIRST = 250;
const LOOK_GROWTH = 1.5;
const LOOK_MS_MAX = 2_000;
/** The socket tells the end; a look now and then is what holds if it doesn't. */
const LOOK_MS_TOLD = 10_000;

export class PromptWatch {
  #looks = 0;
  #absent = 0;
  #blindSince: number | null = null;

  /** Undefined pages could not be had. `told`: a socket is open that will say when the prompt has ended. `now` in ms. */
  onLook(history: HistoryReading | undefined, queue: QueueReading | undefined, now: number, told: boolean): WatchStep {
    switch (history?.kind) {
      case "succeeded":
        if (history.outputs !== "") return history;
        return { kind: "failed", why: "the workflow ended and gave nothing", again: false };
      case "failed":
        return history;
      case "interrupted":
        return { kind: "failed", why: "somebody interrupted the workflow", again: true };
      default:
        return this.#notEnded(history, queue, now, told);
    }
  }

  #notEnded(
    history: HistoryReading | undefined,
    queue: QueueReading | undefined,
    now: number,
    told: boolean,
  ): WatchStep {
    if (queue !== undefined && queue.kind !== "absent") {
      this.#absent = 0;
      this.#blindSince = null;
      return this.#wait(told ? LOOK_MS_TOLD : LOOK_MS_MAX);
    }
    if (history === undefined || queue === undefined) {
      this.#blindSince ??= now;
      if (now - this.#blindSince >= BLIND_MS_MAX) return { kind: "lost", why: "ComfyUI can't be asked for the prompt" };
      return this.#wait(LOOK_MS_MAX);
    }
    this.#blindSince = null;
    this.#absent += 1;
    if (this.#absent >= 2) return { kind: "lost", why: "ComfyUI knows nothing of the prompt any more" };
    return { kind: "wait", ms: LOOK_MS_FIRST };
  }

  #wait(atMost: number): WatchStep {
    const ms = Math.min(atMost, LOOK_MS_FIRST * LOOK_GROWTH ** Math.min(this.#looks, 20));
    this.#looks += 1;
    return { kind: "wait", ms };
  }
}
