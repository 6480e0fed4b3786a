import type { ErrorCode } from "../../kernel/errors.ts";
import type { BufferBudget } from "../buffer-budget.ts";
import type { ClientReply, WriteResult } from "../http/client-port.ts";

export interface Recording {
  /** 0 when there was no answer. */
  readonly status: number;
  /** Flat, as they went out, but for ours that are added to each answer. */
  readonly headers: readonly string[];
  /** Null: too large, or there was no memory for it. */
  readonly body: Buffer | null;
  readonly lostTo: "too_large" | "no_memory" | null;
  /** The answer came to its regular end. */
  readonly whole: boolean;
}

/**
 * A client's reply with headers of ours added to its head and, where asked, a copy taken of all that goes out.
 *
 * Invariants:
 *   R1. What the client gets is what it would get without the copy, but that chunk framing is made here.
 *   R2. No more than `bytesMax` are held, each of them taken from the budget and given back by `release`.
 */
export class RecordingReply implements ClientReply {
  /** The payload is what is kept, so the engine's framing has to come off. */
  readonly takesFraming = false;
  readonly #inner: ClientReply;
  readonly #budget: BufferBudget;
  readonly #bytesMax: number;
  readonly #added: readonly string[];
  #status = 0;
  #headers: readonly string[] = [];
  #parts: Buffer[] = [];
  #bytes = 0;
  #lostTo: Recording["lostTo"] = null;
  #whole = false;

  /** `bytesMax` 0: nothing is copied. `added`: flat list. */
  constructor(inner: ClientReply, budget: BufferBudget, bytesMax: number, added: readonly string[]) {
    this.#inner = inner;
    this.#budget = budget;
    this.#bytesMax = bytesMax;
    this.#added = added;
    if (bytesMax === 0) this.#lostTo = "too_large";
  }

  /** What was copied; the bytes are the caller's to read until `release`. */
  recording(): Recording {
    return {
      status: this.#status,
      headers: this.#headers,
      body: this.#lostTo === null ? Buffer.concat(this.#parts) : null,
      lostTo: this.#lostTo,
      whole: this.#whole,
    };
  }

  /** Gives the memory back; nothing is copied any more. */
  release(): void {
    this.#lose("no_memory");
  }

  get takesInformational(): boolean {
    return this.#inner.takesInformational;
  }

  get begun(): boolean {
    return this.#inner.begun;
  }

  get gone(): boolean {
    return this.#inner.gone;
  }

  get untakenBytes(): number {
    return this.#inner.untakenBytes;
  }

  get onGone(): (() => void) | null {
    return this.#inner.onGone;
  }

  set onGone(listener: (() => void) | null) {
    this.#inner.onGone = listener;
  }

  get onDrain(): (() => void) | null {
    return this.#inner.onDrain;
  }

  set onDrain(listener: (() => void) | null) {
    this.#inner.onDrain = listener;
  }

  sendContinue(): void {
    this.#inner.sendContinue();
  }

  sendInformational(status: number, rawHeaders: readonly string[]): void {
    this.#inner.sendInformational(status, rawHeaders);
  }

  sendWhole(status: number, headers: string[], body: Buffer | string, refusal?: ErrorCode): void {
    this.#head(status, headers);
    this.#copy(typeof body === "string" ? Buffer.from(body) : body);
    this.#whole = true;
    this.#inner.sendWhole(status, [...headers, ...this.#added], body, refusal);
  }

  begin(status: number, headers: string[], contentLength: number | undefined): boolean {
    this.#head(status, headers);
    return this.#inner.begin(status, [...headers, ...this.#added], contentLength);
  }

  writeFramed(bytes: Buffer): WriteResult {
    this.#copy(bytes);
    return this.#inner.writeFramed(bytes);
  }

  writePayload(payload: Buffer): WriteResult {
    this.#copy(payload);
    return this.#inner.writePayload(payload);
  }

  end(trailers: readonly string[]): void {
    this.#whole = true;
    this.#inner.end(trailers);
  }

  breakOff(): void {
    this.#inner.breakOff();
  }

  destroy(): void {
    this.#inner.destroy();
  }

  endConnection(): void {
    this.#inner.endConnection();
  }

  #head(status: number, headers: readonly string[]): void {
    this.#status = status;
    this.#headers = [...headers];
  }

  #copy(bytes: Buffer): void {
    if (this.#lostTo !== null || bytes.length === 0) return;
    if (this.#bytes + bytes.length > this.#bytesMax) return this.#lose("too_large");
    if (!this.#budget.take(bytes.length)) return this.#lose("no_memory");
    this.#bytes += bytes.length;
    this.#parts.push(Buffer.from(bytes));
  }

  #lose(to: "too_large" | "no_memory"): void {
    this.#lostTo ??= to;
    this.#budget.give(this.#bytes);
    this.#bytes = 0;
    this.#parts = [];
  }
}
