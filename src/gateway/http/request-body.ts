import type { Clock, MonoMs } from "../../kernel/clock.ts";
import { parseContentLength } from "../../decide/http/content-length.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import type { Deadline, TimerWheel } from "../../kernel/timer-wheel.ts";
import type { BufferBudget } from "../buffer-budget.ts";
import { headerValue } from "../calls/answer-headers.ts";
import type { BodyReader, ClientReply, ClientRequest } from "./client-port.ts";

/** Bytes of a request's body by its head; "unknown" where chunks tell, "none" without a word of it. */
export type BodyLength = number | "unknown" | "none";

export function bodyLength(rawHeaders: readonly string[]): BodyLength {
  if (headerValue(rawHeaders, "transfer-encoding") !== undefined) return "unknown";
  const length = headerValue(rawHeaders, "content-length");
  return length === undefined ? "none" : parseContentLength(length);
}

export type BodyEnd =
  | { readonly kind: "whole"; readonly chunks: readonly Buffer[]; readonly bytes: number }
  | { readonly kind: "tooLarge"; readonly bytesMax: number }
  /** The process-wide memory for bodies is full. */
  | { readonly kind: "noMemory" }
  | { readonly kind: "tooSlow" }
  | { readonly kind: "clientGone" };

export interface BodyDeps {
  readonly clock: Clock;
  readonly wheel: TimerWheel;
  readonly budget: BufferBudget;
  readonly bytesMax: number;
  readonly idleMs: number;
}

/** A body that came slower than this after `bodyIdleMs` is one that will never end. Slow lines and devices send a KB a second. */
const BYTES_PER_MS_MIN = 0.25;

/**
 * Collects a request's body within its limits, showing each piece to a scanner on the way, so that nothing is looked at
 * twice. What was taken from the budget stays taken until the owner gives it back.
 *
 * The clock: after `bodyIdleMs` a body must have come at 250 bytes/s on average, checked again and again; so a trickle is cut
 * and a slow upload of a large file is not.
 */
export class RequestBody implements BodyReader {
  readonly holdsAll = true;
  readonly length: BodyLength;
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

  constructor(req: ClientRequest, deps: BodyDeps) {
    this.#req = req;
    this.length = bodyLength(req.rawHeaders);
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

  /**
   * `waiting`: the client that sends its body only when it is told to go on, else null. Calls `done` exactly once, never
   * synchronously on success.
   */
  collect(waiting: ClientReply | null, onChunk: (chunk: Buffer) => void, done: (end: BodyEnd) => void): void {
    this.#done = done;
    const declared = this.length === "none" ? 0 : this.length;
    if (declared !== "unknown" && declared > this.#bytesMax)
      return this.#finish({ kind: "tooLarge", bytesMax: this.#bytesMax });
    waiting?.sendContinue();
    if (declared !== "unknown" && !this.#take(declared)) return this.#finish({ kind: "noMemory" });
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

/** A body whose memory is held until it is disposed of. */
export type WholeBody = Extract<BodyEnd, { kind: "whole" }> & Disposable;

/** Collects a body for who needs all of it at once; memory of one that is not whole is given back. */
export async function collectBody(
  { req, res }: { readonly req: ClientRequest; readonly res: ClientReply },
  expectsContinue: boolean,
  deps: BodyDeps,
): Promise<WholeBody | Exclude<BodyEnd, { kind: "whole" }>> {
  const body = new RequestBody(req, deps);
  const end = await new Promise<BodyEnd>((resolve) => body.collect(expectsContinue ? res : null, () => {}, resolve));
  const give = (): void => deps.budget.give(body.takenBytes);
  if (end.kind === "whole") return { ...end, [Symbol.dispose]: give };
  give();
  return end;
}

/** `what`: the body in the route's words. `setting`: where its limit is set. */
export function refusalOfBody(
  end: Exclude<BodyEnd, { kind: "whole" }>,
  what: string,
  setting: string,
): [code: ErrorCode, why: string] {
  switch (end.kind) {
    case "tooLarge":
      return ["BODY_TOO_LARGE", `the ${what} is larger than ${end.bytesMax} bytes (${setting})`];
    case "noMemory":
      return ["QUEUE_FULL", "the memory for request bodies is full (max_buffered_bytes)"];
    case "tooSlow":
      return ["REQUEST_TIMEOUT", `the ${what} came too slowly`];
    case "clientGone":
      return ["CLIENT_CLOSED", `the client left while sending its ${what}`];
    default:
      return assertNever(end, "end of a body");
  }
}
