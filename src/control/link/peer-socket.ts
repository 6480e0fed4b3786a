import type { WebSocket } from "ws";
import { LINK_CLOSE, LINK_DEAD_MS, PING_EVERY_MS } from "../../contract/agent-link.ts";
import type { ReadFrame } from "../../contract/frames.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";

/**
 * One connection of an agent or a gateway that has dialled in.
 *
 * Invariants:
 *   S1. It lives only as long as the other side answers pings: what comes in without an answer proves one direction only.
 *   S2. What waits to be sent is bounded; who does not read gets no more, and is told so to the caller.
 *   S3. A frame that can't be read ends the connection; what it held is in no log.
 *   S4. `onClose` is called once, whatever ended it.
 */
const LOOK_EVERY_MS = 1_000;
/** A peer that does not answer a close is cut after this. */
const CLOSE_MS_MAX = 1_000;
const WHY_CHARS_MAX = 100;

interface Ping {
  readonly type: "ping" | "pong";
  readonly n: number;
}

export interface PeerPorts<In extends { readonly type: string }> {
  readonly clock: Clock;
  readonly read: (frame: string) => ReadFrame<In | Ping>;
  readonly onMessage: (message: In) => void;
  readonly onClose: (code: number, why: string) => void;
  /** How much may wait to be sent. */
  readonly heldBytesMax: number;
}

export class PeerSocket<In extends { readonly type: string }> {
  readonly #socket: WebSocket;
  readonly #ports: PeerPorts<In>;
  #provenAlive: MonoMs;
  #pingedAt: MonoMs;
  #pings = 0;
  #timer: Timer;
  #why = "";
  #isOver = false;

  constructor(socket: WebSocket, ports: PeerPorts<In>) {
    this.#socket = socket;
    this.#ports = ports;
    const now = ports.clock.mono();
    this.#provenAlive = now;
    this.#pingedAt = now;
    this.#timer = ports.clock.after(LOOK_EVERY_MS, () => this.#look());
    socket.on("message", (data, isBinary) => {
      if (isBinary || !Buffer.isBuffer(data)) this.close(LINK_CLOSE.protocol, "a binary frame");
      else this.#take(data.toString("utf8"));
    });
    socket.on("error", (error) => (this.#why ||= error.message));
    socket.on("close", (code) => this.#over(code));
  }

  get isOpen(): boolean {
    return !this.#isOver && this.#socket.readyState === this.#socket.OPEN;
  }

  get heldBytes(): number {
    return this.#socket.bufferedAmount;
  }

  /** False when it is over, or holds as much as it may: nothing was taken. */
  send(frame: string): boolean {
    if (!this.isOpen) return false;
    if (this.#socket.bufferedAmount > this.#ports.heldBytesMax) return false;
    this.#socket.send(frame);
    return true;
  }

  close(code: number, why: string): void {
    if (this.#isOver) return;
    this.#why ||= why;
    this.#socket.close(code, why.slice(0, WHY_CHARS_MAX));
    this.#ports.clock.after(CLOSE_MS_MAX, () => this.#socket.terminate());
  }

  /** At once, without a word. */
  terminate(why: string): void {
    this.#why ||= why;
    this.#socket.terminate();
  }

  #over(code: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#timer.cancel();
    this.#ports.onClose(code, this.#why === "" ? `closed with code ${code}` : this.#why);
  }

  #look(): void {
    const { clock } = this.#ports;
    const now = clock.mono();
    if (now - this.#provenAlive > LINK_DEAD_MS) {
      this.#why ||= `no answer for ${Math.round((now - this.#provenAlive) / 1_000)} s`;
      this.close(LINK_CLOSE.silent, this.#why);
      return;
    }
    if (now - this.#pingedAt >= PING_EVERY_MS) {
      this.#pingedAt = now;
      this.#pings += 1;
      this.send(JSON.stringify({ type: "ping", n: this.#pings }));
    }
    this.#timer = clock.after(LOOK_EVERY_MS, () => this.#look());
  }

  #take(text: string): void {
    if (!this.isOpen) return;
    const frame = this.#ports.read(text);
    if (frame.kind === "unknown") return;
    if (frame.kind === "invalid") {
      this.close(LINK_CLOSE.protocol, frame.why);
      return;
    }
    const { message } = frame;
    if (isPing(message)) {
      if (message.type === "ping") this.send(JSON.stringify({ type: "pong", n: message.n }));
      // It counts from when the ping left: an answer that lay in a buffer meanwhile proves nothing about now.
      else if (message.n === this.#pings) this.#provenAlive = this.#pingedAt;
      return;
    }
    this.#ports.onMessage(message);
  }
}

const isPing = (message: { readonly type: string }): message is Ping =>
  message.type === "ping" || message.type === "pong";
