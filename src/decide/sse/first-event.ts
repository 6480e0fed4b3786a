import { EventCursor } from "./event-cursor.ts";
import { judgeEvent, readEventText } from "./judge-event.ts";
import { refusalOfEvent, type EventRefusal } from "./refusal-event.ts";
import { EVENT_BYTES_MAX } from "./stream-watcher.ts";

export type FirstEvent =
  /** The first event is not whole yet, and no comment came before it. */
  | { readonly kind: "more" }
  /** Only whole comments have come: the engine keeps the connection alive, and has not answered. */
  | { readonly kind: "commentsOnly" }
  | {
      readonly kind: "event";
      readonly isError: boolean;
      readonly isDone: boolean;
      /** At most 512 characters, unescaped. */
      readonly errorMessage: string | undefined;
      /** The error is the request's own: it would have been this answer, had the head not gone first. */
      readonly refusal: EventRefusal | undefined;
    }
  | { readonly kind: "overflow" };

const COLON = 0x3a;

/**
 * Looks at a stream until its first event is whole. An engine sends 200 and the head at admission, and reports its own death
 * or shutdown as the first event: until that is known, the request can still go elsewhere. After "event" or "overflow" it
 * takes nothing more and repeats what it said.
 */
export class FirstEventGate {
  readonly #bytesMax: number;
  readonly #cursor = new EventCursor();
  readonly #parts: Buffer[] = [];
  #bytes = 0;
  #comments = false;
  #said: FirstEvent | null = null;

  constructor(options: { readonly eventBytesMax?: number } = {}) {
    this.#bytesMax = options.eventBytesMax ?? EVENT_BYTES_MAX;
  }

  /** Takes the bytes [start, end). Keeps no reference to `bytes`. */
  push(bytes: Buffer, start: number, end: number): FirstEvent {
    if (this.#said !== null) return this.#said;
    let at = start;
    while (at < end) {
      const next = this.#cursor.next(bytes, at, end);
      const stop = next === -1 ? end : next;
      this.#bytes += stop - at;
      if (this.#bytes > this.#bytesMax) return (this.#said = { kind: "overflow" });
      this.#parts.push(Buffer.from(bytes.subarray(at, stop)));
      at = stop;
      if (next === -1) break;
      if (this.#cursor.endedWithData) return (this.#said = this.#judge());
      if (this.#parts[0]?.[0] === COLON) this.#comments = true;
      this.#parts.length = 0;
      this.#bytes = 0;
    }
    return { kind: this.#comments && this.#bytes === 0 ? "commentsOnly" : "more" };
  }

  #judge(): FirstEvent {
    const text = Buffer.concat(this.#parts).toString("latin1");
    this.#parts.length = 0;
    const event = readEventText(text);
    const facts = judgeEvent(event);
    return {
      kind: "event",
      isError: facts.error !== undefined,
      isDone: facts.isDone,
      errorMessage: facts.error?.message,
      refusal: refusalOfEvent(event.data ?? "", facts.error?.status),
    };
  }
}
