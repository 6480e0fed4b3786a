import { mergeUsage, UNKNOWN_USAGE, type TokenUsage } from "../http/token-usage.ts";
import { EventCursor } from "./event-cursor.ts";
import { judgeEvent, readEventText, type EventFacts, type StreamFlavour } from "./judge-event.ts";
import {
  eventEnd,
  eventStart,
  holdsData,
  lastNumber,
  nextTelling,
  TELLING_CHOICES,
  TELLING_TYPED,
} from "./telling-places.ts";

// Watches a stream on its way past, byte by byte or in bunches, and says at the end what it was. It owns a copy of the one event
// that is cut at the end of what has come, and nothing else of the stream.
//
// Invariants:
//   W1. Each byte belongs to exactly one stretch, and each whole event that could tell something is judged exactly once, in order.
//   W2. An event that tells nothing is neither copied nor turned into text; most tokens are such events.
//   W3. At most `eventBytesMax` bytes are held; past that the stream has overflown and is not watched any more.

export const EVENT_BYTES_MAX = 1_048_576;
/** Events that are read whole at the start of a stream: until one tells its flavour and one brings content. */
const FIRST_EVENTS_READ = 32;
const PENDING_BYTES_FIRST = 512;
/** A buffer larger than this is let go when its event is over. */
const PENDING_BYTES_KEPT = 8_192;

const LF = 0x0a;
const CR = 0x0d;
/** Up to here a copy by hand is cheaper than a native call. */
const SHORT_BYTES = 16;
const NOTHING_HELD = Buffer.alloc(0);

/** Where a stream stands when it is broken off. */
export interface StreamPlace {
  readonly atBoundary: boolean;
  /** Of the last whole event that has one. */
  readonly lastSequenceNumber: number | undefined;
}

/** Of a stream that nobody looks into: it may be inside an event. */
export const UNWATCHED_PLACE: StreamPlace = { atBoundary: false, lastSequenceNumber: undefined };

export interface StreamVerdict extends StreamPlace {
  /** A finish reason was seen, or the format's own end event. */
  readonly finishSeen: boolean;
  /** The last finish or stop reason; `undefined` when the end event names none. */
  readonly finishReason: string | undefined;
  readonly errorSeen: boolean;
  /** At most 512 characters of the engine's first error message, unescaped. */
  readonly errorMessage: string | undefined;
  /** The HTTP status that the first error stands for, where it says so. */
  readonly errorStatus: number | undefined;
  readonly doneSeen: boolean;
  readonly overflow: boolean;
  /** The last usage that the stream told. */
  readonly usage: TokenUsage;
  /** Text, reasoning, a tool call or other output was seen. Assumed after 32 events. */
  readonly contentSeen: boolean;
}

/** The answer is whole: [DONE] or a clean end alone are no proof, and an engine that gives up may name that as its reason. */
export const streamSucceeded = (verdict: StreamVerdict): boolean =>
  verdict.finishSeen &&
  !verdict.errorSeen &&
  !verdict.overflow &&
  verdict.finishReason !== "abort" &&
  verdict.finishReason !== "error";

export class StreamWatcher {
  readonly #eventBytesMax: number;
  readonly #cursor = new EventCursor();
  #pending: Buffer = NOTHING_HELD;
  #pendingBytes = 0;
  #overflow = false;
  /** The bytes being taken have completed an event. */
  #completed = false;
  #eventsRead = 0;
  #settled = false;
  #flavour: StreamFlavour | undefined;
  #numbered = false;

  #finishSeen = false;
  #finishReason: string | undefined;
  #errorMessage: string | undefined;
  #errorStatus: number | undefined;
  #doneSeen = false;
  #usage: TokenUsage = UNKNOWN_USAGE;
  #contentSeen = false;
  #lastSequenceNumber: number | undefined;

  constructor(options: { readonly eventBytesMax?: number } = {}) {
    this.#eventBytesMax = options.eventBytesMax ?? EVENT_BYTES_MAX;
  }

  /** More than `eventBytesMax` bytes came without the end of an event. */
  get overflow(): boolean {
    return this.#overflow;
  }

  /** Nothing of an event has come since the last one ended. */
  get atBoundary(): boolean {
    return this.#cursor.atBoundary;
  }

  /** Bytes of the event that has begun. */
  get incompleteBytes(): number {
    return this.#pendingBytes;
  }

  get errorSeen(): boolean {
    return this.#errorMessage !== undefined;
  }

  /**
   * Takes the bytes [start, end). Says whether they completed an event: comments alone are no progress.
   * Keeps no reference to `bytes`.
   */
  feed(bytes: Buffer, start: number, end: number): boolean {
    if (start >= end || this.#overflow) return false;
    this.#completed = false;
    const cursor = this.#cursor;
    let at = start;
    if (this.#pendingBytes > 0 || cursor.awaitsLf || !cursor.started) {
      at = cursor.next(bytes, start, end);
      if (at === -1) {
        this.#hold(bytes, start, end);
        return false;
      }
      this.#complete(bytes, start, at);
      if (this.#overflow) return this.#completed;
    }
    const cut = end - at > this.#eventBytesMax ? at : lastBlankLine(bytes, at, end);
    if (cut > at) {
      // The cursor stands at a boundary before and after these whole events, so it need not see them.
      cursor.passOver();
      if (!this.#completed) this.#completed = holdsData(bytes, at, cut);
      this.#whole(bytes, at, cut);
      at = cut;
    }
    if (at < end) this.#walk(bytes, at, end);
    return this.#completed;
  }

  /** What is known now. May be asked at any time; an event that is not whole counts for nothing. */
  finish(): StreamVerdict {
    return {
      finishSeen: this.#finishSeen,
      finishReason: this.#finishReason,
      errorSeen: this.errorSeen,
      errorMessage: this.#errorMessage,
      errorStatus: this.#errorStatus,
      doneSeen: this.#doneSeen,
      overflow: this.#overflow,
      atBoundary: this.atBoundary,
      usage: this.#usage,
      contentSeen: this.#contentSeen,
      lastSequenceNumber: this.#lastSequenceNumber,
    };
  }

  /** Stretch by stretch, for what does not end with a plain blank line. */
  #walk(bytes: Buffer, from: number, to: number): void {
    let at = from;
    while (at < to && !this.#overflow) {
      const next = this.#cursor.next(bytes, at, to);
      if (next === -1) {
        this.#hold(bytes, at, to);
        return;
      }
      this.#complete(bytes, at, next);
      at = next;
    }
  }

  /** A stretch ends with [from, to); its beginning may be pending. */
  #complete(bytes: Buffer, from: number, to: number): void {
    const isEvent = this.#cursor.endedWithData;
    if (isEvent) this.#completed = true;
    if (this.#pendingBytes === 0) {
      if (to - from > this.#eventBytesMax) this.#overflow = true;
      else if (isEvent) this.#whole(bytes, from, to);
      return;
    }
    this.#hold(bytes, from, to);
    if (this.#overflow) return;
    const held = this.#pendingBytes;
    this.#pendingBytes = 0;
    if (isEvent) this.#whole(this.#pending, 0, held);
    if (this.#pending.length > PENDING_BYTES_KEPT) this.#pending = NOTHING_HELD;
  }

  #hold(bytes: Buffer, from: number, to: number): void {
    const needed = this.#pendingBytes + to - from;
    if (needed > this.#eventBytesMax) {
      this.#overflow = true;
      this.#pending = NOTHING_HELD;
      this.#pendingBytes = 0;
      return;
    }
    if (needed > this.#pending.length) {
      const size = Math.min(this.#eventBytesMax, Math.max(PENDING_BYTES_FIRST, needed + (needed >> 1)));
      const grown = Buffer.allocUnsafeSlow(size);
      this.#pending.copy(grown, 0, 0, this.#pendingBytes);
      this.#pending = grown;
    }
    if (to - from > SHORT_BYTES) bytes.copy(this.#pending, this.#pendingBytes, from, to);
    else for (let at = from, put = this.#pendingBytes; at < to; at++, put++) this.#pending[put] = bytes[at]!;
    this.#pendingBytes = needed;
  }

  /** Whole events: the first ones are read, then only those with a place that tells something. */
  #whole(bytes: Buffer, from: number, to: number): void {
    let at = from;
    while (!this.#settled && at < to) {
      const next = eventEnd(bytes, at, to, false);
      this.#judge(bytes, at, next);
      at = next;
    }
    const places = this.#flavour === "choices" ? TELLING_CHOICES : TELLING_TYPED;
    while (at < to) {
      const place = nextTelling(places, bytes, at, to);
      if (place === -1) break;
      const next = eventEnd(bytes, place, to, true);
      this.#judge(bytes, eventStart(bytes, at, place), next);
      at = next;
    }
    if (this.#numbered) this.#lastSequenceNumber = lastNumber(bytes, from, to) ?? this.#lastSequenceNumber;
  }

  #judge(bytes: Buffer, from: number, to: number): void {
    const event = readEventText(bytes.toString("latin1", from, to));
    if (event.data === undefined) return;
    const facts = judgeEvent(event);
    if (!this.#settled) this.#settle(facts);
    if (facts.isDone) this.#doneSeen = true;
    if (facts.error !== undefined && this.#errorMessage === undefined) {
      this.#errorMessage = facts.error.message;
      this.#errorStatus = facts.error.status;
    }
    if (facts.finishReason !== undefined) {
      this.#finishSeen = true;
      if (facts.finishReason !== null) this.#finishReason = facts.finishReason;
    }
    if (facts.usage !== undefined)
      this.#usage = facts.usageIsWhole ? facts.usage : mergeUsage(this.#usage, facts.usage);
    if (facts.sequenceNumber !== undefined) this.#lastSequenceNumber = facts.sequenceNumber;
  }

  #settle(facts: EventFacts): void {
    this.#eventsRead += 1;
    this.#flavour ??= facts.flavour;
    if (facts.sequenceNumber !== undefined) this.#numbered = true;
    if (facts.hasContent || this.#eventsRead >= FIRST_EVENTS_READ) this.#contentSeen = true;
    this.#settled = this.#contentSeen && (this.#flavour !== undefined || this.#eventsRead >= FIRST_EVENTS_READ);
  }
}

/**
 * The offset behind the last LF LF or LF CR LF in [from, to), or `from`. These always end an event, whatever came before; streams
 * with lone CRs are taken line by line.
 */
function lastBlankLine(bytes: Buffer, from: number, to: number): number {
  for (let at = to - 1; at > from; at--) {
    if (bytes[at] !== LF) continue;
    const before = bytes[at - 1];
    if (before === LF || (before === CR && at - 2 >= from && bytes[at - 2] === LF)) return at + 1;
  }
  return from;
}
