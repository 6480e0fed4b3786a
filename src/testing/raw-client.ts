import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { PATIENCE_MS, Watched, within } from "./wait-for.ts";
import { resetSocket } from "../kernel/reset-socket.ts";

/** How the other side ended: it closed in order, reset the connection (or another error came), or has not ended. */
export type Ending = "open" | "closed" | "reset";

export interface RawClientOptions {
  readonly host?: string;
  readonly localAddress?: string;
  /** For each wait. */
  readonly patienceMs?: number;
  /** Starts without reading. */
  readonly paused?: boolean;
}

/** A client that writes and reads bytes as they are: for what a well-behaved HTTP client would never send or never see. */
export class RawClient implements Disposable {
  readonly #socket: Socket;
  readonly #state = new Watched();
  readonly #patienceMs: number;
  #chunks: Buffer[] = [];
  #ending: Ending = "open";
  #error: NodeJS.ErrnoException | undefined;

  /** Half-closing is left to the caller: an end from the other side does not end ours. */
  static async connect(port: number, options: RawClientOptions = {}): Promise<RawClient> {
    const { host = "127.0.0.1", localAddress } = options;
    const socket = connect({
      port,
      host,
      allowHalfOpen: true,
      noDelay: true,
      ...(localAddress ? { localAddress } : {}),
    });
    await within("connection", once(socket, "connect"), options.patienceMs);
    return new RawClient(socket, options);
  }

  private constructor(socket: Socket, options: RawClientOptions) {
    this.#socket = socket;
    this.#patienceMs = options.patienceMs ?? PATIENCE_MS;
    socket.on("data", (chunk: Buffer) => {
      this.#chunks.push(chunk);
      this.#state.changed();
    });
    socket.on("end", () => this.#ended("closed"));
    socket.on("error", (error) => {
      this.#error = error;
      this.#ended("reset");
    });
    if (options.paused === true) socket.pause();
  }

  get localPort(): number {
    return this.#socket.localPort ?? 0;
  }

  get ending(): Ending {
    return this.#ending;
  }

  /** The error that came with a reset. */
  get error(): NodeJS.ErrnoException | undefined {
    return this.#error;
  }

  get bytesRead(): number {
    return this.#socket.bytesRead;
  }

  /** Everything received and not taken, in order. */
  get received(): Buffer {
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0] ?? Buffer.alloc(0);
  }

  /** `received` with one character per byte. */
  get text(): string {
    return this.received.toString("latin1");
  }

  /** Gives what was received and forgets it, so that the next wait sees only what comes after. */
  take(): Buffer {
    const all = this.received;
    this.#chunks = [];
    return all;
  }

  /** Texts are written with one byte per character. Resolves when the system has taken the bytes. */
  write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? Buffer.from(data, "latin1") : data;
    const written = new Promise<void>((resolve, reject) => {
      this.#socket.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
    return within(`write of ${bytes.length} bytes`, written, this.#patienceMs);
  }

  /** Everything received once the pattern is in it; rejects when the other side ends first. */
  async readUntil(pattern: string | RegExp | ((received: Buffer) => boolean)): Promise<Buffer> {
    const holds =
      typeof pattern === "function"
        ? pattern
        : (bytes: Buffer) =>
            typeof pattern === "string" ? bytes.includes(pattern, 0, "latin1") : pattern.test(bytes.toString("latin1"));
    await this.#state.until(
      `bytes that match ${String(pattern)}`,
      () => {
        if (holds(this.received)) return true;
        if (this.#ending !== "open")
          throw new Error(`the other side ended (${this.#ending}) after: ${this.text.slice(-500)}`);
        return false;
      },
      this.#patienceMs,
    );
    return this.received;
  }

  /** Everything received until the other side ended, in whichever way; `ending` says in which. */
  async readToEnd(): Promise<Buffer> {
    this.#socket.resume();
    await this.#state.until("end of the connection", () => this.#ending !== "open", this.#patienceMs);
    return this.received;
  }

  /** Stops reading: the system's buffers fill and the other side feels it. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Sends our end (FIN) and goes on reading. */
  halfClose(): void {
    this.#socket.end();
  }

  /** Breaks the connection off with a reset (RST). */
  reset(): void {
    resetSocket(this.#socket);
  }

  /** Leaves without a word more: what was not sent is lost. */
  close(): void {
    this.#socket.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #ended(how: Ending): void {
    if (this.#ending === "open" || how === "reset") this.#ending = how;
    this.#state.changed();
  }
}
