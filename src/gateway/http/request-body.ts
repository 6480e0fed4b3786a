import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { Deadline, TimerWheel } from "../../kernel/timer-wheel.ts";
import type { BufferBudget } from "../buffer-budget.ts";
import type { BodyReader, ClientRequest } from "./client-port.ts";

export type BodyEnd =
  | { readonly kind: "whole"; readonly chunks: readonly Buffer[]; readonly bytes: number }
  | { readonly kind: "tooLarge"; readonly bytesMax: number }
  /** The process-wide memory for bodies is full. */
  | { readonly kind: "noMemory" }
  | { readonly kind: "tooSlow" }
  | { readonly kind: "clientGone" };

/** A body that came slower than this after `bodyIdleMs` is one that will never end. */
const BYTES_PER_MS_MIN = 1;

/**
 * Collects a request's body within its limits, showing each piece to a scanner on the way, so that nothing is looked at
 * twice. What was taken from the budget stays taken until the owner gives it back.
 *
 * The clock: after `bodyIdleMs` a body must have come at 1 KB/s on average, checked again and again; so a trickle is cut
 * and a slow upload of a large file is not.
 */
export class RequestBody implements BodyReader {
  readonly holdsAll = true;
  readonly #req: ClientRequest;
  readonly #wheel: TimerWheel;
  readonly #budget: BufferBudget;
  readonly #bytesMax: number;
  readonly #idleMs: number;
  readonly #startedAt: MonoMs;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #taken = 0;
  #deadline: Deadline | undefined;
  #onChunk: ((chunk: Buffer) => void) | undefined;
  #done: ((end: BodyEnd) => void) | undefined;

  constructor(
    req: ClientRequest,
    deps: { clock: Clock; wheel: TimerWheel; budget: BufferBudget; bytesMax: number; idleMs: number },
  ) {
    this.#req = req;
    this.#wheel = deps.wheel;
    this.#budget = deps.budget;
    this.#bytesMax = deps.bytesMax;
    this.#idleMs = deps.idleMs;
    this.#startedAt = deps.clock.mono();
  }

  /** Bytes held against the budget; given back by the owner. */
  get takenBytes(): number {
    return this.#taken;
  }

  /** `declared` is the Content-Length, undefined for a chunked body. Calls `done` exactly once, never synchronously on success. */
  collect(declared: number | undefined, onChunk: (chunk: Buffer) => void, done: (end: BodyEnd) => void): void {
    this.#done = done;
    if (declared !== undefined && declared > this.#bytesMax)
      return this.#finish({ kind: "tooLarge", bytesMax: this.#bytesMax });
    if (declared !== undefined && !this.#take(declared)) return this.#finish({ kind: "noMemory" });
    this.#deadline = this.#wheel.add((this.#startedAt + this.#idleMs) as MonoMs, (now) => this.#checkPace(now));
    this.#onChunk = onChunk;
    this.#req.readBody(this);
  }

  onData(chunk: Buffer): void {
    if (this.#done === undefined) return;
    this.#bytes += chunk.length;
    if (this.#bytes > this.#bytesMax) return this.#finish({ kind: "tooLarge", bytesMax: this.#bytesMax });
    if (this.#bytes > this.#taken && !this.#take(this.#bytes - this.#taken)) return this.#finish({ kind: "noMemory" });
    const last = this.#chunks.at(-1);
    if (last !== undefined && goesOn(last, chunk))
      this.#chunks[this.#chunks.length - 1] = Buffer.from(last.buffer, last.byteOffset, last.length + chunk.length);
    else this.#chunks.push(chunk);
    this.#onChunk?.(chunk);
  }

  onEnd(): void {
    this.#finish({ kind: "whole", chunks: this.#chunks, bytes: this.#bytes });
  }

  onBroken(): void {
    this.#finish({ kind: "clientGone" });
  }

  #take(bytes: number): boolean {
    if (!this.#budget.take(bytes)) return false;
    this.#taken += bytes;
    return true;
  }

  #checkPace(now: MonoMs): void {
    const elapsed = now - this.#startedAt;
    if (this.#bytes < elapsed * BYTES_PER_MS_MIN) return this.#finish({ kind: "tooSlow" });
    this.#deadline = this.#wheel.add((now + Math.min(this.#idleMs, 5_000)) as MonoMs, (later) =>
      this.#checkPace(later),
    );
  }

  #finish(end: BodyEnd): void {
    const done = this.#done;
    if (done === undefined) return;
    this.#done = undefined;
    if (this.#deadline !== undefined) this.#wheel.remove(this.#deadline);
    // The request, which lives as long as its answer, holds this as its reader; the chunks are the owner's now.
    this.#chunks = [];
    this.#onChunk = undefined;
    done(end);
  }
}

/** Pieces of one memory are one piece again, which takes one place in the system call that sends them on. */
const goesOn = (last: Buffer, next: Buffer): boolean =>
  last.buffer === next.buffer && last.byteOffset + last.length === next.byteOffset;
