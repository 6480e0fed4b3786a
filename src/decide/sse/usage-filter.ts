import { isJsonObject } from "../http/token-usage.ts";
import { EventCursor } from "./event-cursor.ts";
import { readEventText } from "./judge-event.ts";

const LF = 0x0a;
/** No usage event is near this size: a longer event passes on piece by piece. */
const HELD_BYTES_MAX = 65_536;

/**
 * Removes the one event that the engine sends because the gateway, not the client, asked for usage: an empty `choices` list
 * beside a `usage` object. Everything else passes byte for byte. An event that is cut is held until it is whole.
 */
export class UsageFilter {
  readonly #cursor = new EventCursor();
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** The event that is passing is too long to be held. */
  #passing = false;
  /** The removed event ended with a CR: its LF, if one follows, goes too. */
  #dropLf = false;

  /** The parts to send on, in order. Some may be views of `payload`. */
  push(payload: Buffer): Buffer[] {
    const out: Buffer[] = [];
    let at = 0;
    /** Start of what passes on without a copy. */
    let run = 0;
    while (at < payload.length) {
      const next = this.#cursor.next(payload, at, payload.length);
      if (next === -1) {
        if (at > run) out.push(payload.subarray(run, at));
        this.#holdOrPass(payload.subarray(at), out);
        return out;
      }
      const stretch = payload.subarray(at, next);
      const isLostLf = this.#dropLf && stretch.length === 1 && stretch[0] === LF;
      this.#dropLf = false;
      if (this.#heldBytes > 0 || this.#passing) {
        this.#endHeld(stretch, out);
        run = next;
      } else if (isLostLf) {
        run = next;
      } else if (this.#cursor.endedWithData && isUsageEvent(stretch)) {
        if (at > run) out.push(payload.subarray(run, at));
        run = next;
        this.#dropLf = this.#cursor.awaitsLf;
      }
      at = next;
    }
    if (payload.length > run) out.push(payload.subarray(run));
    return out;
  }

  /** The stream is over: what is still held. */
  finish(): Buffer[] {
    const rest = this.#held;
    this.#held = [];
    this.#heldBytes = 0;
    return rest;
  }

  #holdOrPass(part: Buffer, out: Buffer[]): void {
    this.#dropLf = false;
    if (!this.#passing && this.#heldBytes + part.length > HELD_BYTES_MAX) {
      this.#passing = true;
      out.push(...this.finish());
    }
    if (this.#passing) {
      out.push(part);
      return;
    }
    this.#held.push(Buffer.from(part));
    this.#heldBytes += part.length;
  }

  #endHeld(part: Buffer, out: Buffer[]): void {
    const held = this.finish();
    if (!this.#passing && this.#cursor.endedWithData && isUsageEvent(Buffer.concat([...held, part])))
      this.#dropLf = this.#cursor.awaitsLf;
    else out.push(...held, part);
    this.#passing = false;
  }
}

function isUsageEvent(bytes: Buffer): boolean {
  if (
    bytes.length > HELD_BYTES_MAX ||
    !bytes.includes('"usage"', 0, "latin1") ||
    !bytes.includes('"choices"', 0, "latin1")
  )
    return false;
  const { data } = readEventText(bytes.toString("latin1"));
  if (data === undefined) return false;
  try {
    const body: unknown = JSON.parse(data);
    if (!isJsonObject(body) || body["error"] !== undefined) return false;
    return Array.isArray(body["choices"]) && body["choices"].length === 0 && isJsonObject(body["usage"]);
  } catch {
    return false;
  }
}
