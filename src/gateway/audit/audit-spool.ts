import type { AuditEvent } from "../../contract/audit-event.ts";
import { eventBytes } from "./audit-row.ts";

/** Events that lie side by side in the run: a batch is one segment, so its first ordinal and length say everything. */
export interface AuditSegment {
  readonly firstOrdinal: number;
  readonly events: AuditEvent[];
  bytes: number;
}

export interface SpoolLimits {
  readonly eventsMax: number;
  readonly bytesMax: number;
}

export const SEGMENT_EVENTS_MAX = 500;

/**
 * Holds events until they are stored.
 *
 * Invariants:
 *   P1. Every event takes one ordinal, kept or lost, so a loss shows as a hole in the numbers.
 *   P2. Never above either limit. After it was full, events are lost until an eighth is free: losses come in few long
 *       runs, not one by one.
 */
export class AuditSpool {
  readonly #limits: SpoolLimits;
  #segments: AuditSegment[] = [];
  #open: AuditSegment | undefined;
  #count = 0;
  #bytes = 0;
  #full = false;
  lastOrdinal = 0;
  lost = 0;

  constructor(limits: SpoolLimits) {
    this.#limits = limits;
  }

  get count(): number {
    return this.#count;
  }

  /** Events are lost at the moment. */
  get full(): boolean {
    return this.#full;
  }

  /** How many events wait in the segment that is being filled. */
  get openCount(): number {
    return this.#open?.events.length ?? 0;
  }

  /** Returns false when the event was lost. */
  add(event: AuditEvent): boolean {
    const ordinal = ++this.lastOrdinal;
    const bytes = eventBytes(event);
    if (this.#full || this.#count >= this.#limits.eventsMax || this.#bytes + bytes > this.#limits.bytesMax) {
      this.#full = true;
      this.#open = undefined;
      this.lost += 1;
      return false;
    }
    let segment = this.#open;
    if (segment === undefined || segment.events.length >= SEGMENT_EVENTS_MAX) {
      segment = { firstOrdinal: ordinal, events: [], bytes: 0 };
      this.#segments.push(segment);
      this.#open = segment;
    }
    segment.events.push(event);
    segment.bytes += bytes;
    this.#bytes += bytes;
    this.#count += 1;
    return true;
  }

  /** An event that comes when nothing is taken any more. */
  lose(): void {
    this.lastOrdinal += 1;
    this.lost += 1;
  }

  /** The oldest segment, closed to further events. It stays in the spool until `remove`. */
  first(): AuditSegment | undefined {
    const segment = this.#segments[0];
    if (segment !== undefined && segment === this.#open) this.#open = undefined;
    return segment;
  }

  /** Forgets the oldest segment: it is stored. */
  remove(): void {
    const segment = this.#segments.shift();
    if (segment === undefined) return;
    this.#count -= segment.events.length;
    this.#bytes -= segment.bytes;
    const { eventsMax, bytesMax } = this.#limits;
    if (this.#full && this.#count <= eventsMax * 0.875 && this.#bytes <= bytesMax * 0.875) this.#full = false;
  }

  /** Gives up what is held: counted as lost. */
  loseAll(): void {
    this.lost += this.#count;
    this.#segments = [];
    this.#open = undefined;
    this.#count = 0;
    this.#bytes = 0;
  }
}
