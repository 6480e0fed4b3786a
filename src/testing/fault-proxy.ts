import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import type { Clock } from "../kernel/clock.ts";
import { seededRandom, type Random } from "../kernel/random.ts";
import { resetSocket } from "../kernel/reset-socket.ts";

// A TCP proxy that hurts what passes through it, each direction for itself, in the words of the toxiproxy project.
// Invariants:
//   F1. Without toxics it is transparent: bytes, half-closes and resets arrive as they were sent, and back-pressure passes.
//   F2. At most HELD_BYTES_MAX per direction wait in it, so that a slow side is felt by the other.

const HELD_BYTES_MAX = 256 * 1024;

export type Direction = "upstream" | "downstream";

export type Toxic =
  /** Everything comes later by `latencyMs` ± `jitterMs`; the order stays. */
  | { readonly kind: "latency"; readonly latencyMs: number; readonly jitterMs?: number }
  | { readonly kind: "bandwidth"; readonly bytesPerS: number }
  /** The end of the stream is passed on late. */
  | { readonly kind: "slow_close"; readonly delayMs: number }
  /** Nothing gets through; the connection is closed after `timeoutMs`, with 0 never. */
  | { readonly kind: "timeout"; readonly timeoutMs: number }
  /** The connection is reset towards both sides after `timeoutMs`. */
  | { readonly kind: "reset_peer"; readonly timeoutMs: number }
  /** Data is cut into pieces of `averageBytes` ± `variationBytes`, `delayMs` apart. */
  | {
      readonly kind: "slicer";
      readonly averageBytes: number;
      readonly variationBytes?: number;
      readonly delayMs?: number;
    }
  /** The connection is closed after this many bytes of each connection. */
  | { readonly kind: "limit_data"; readonly bytes: number };

export interface FaultProxyOptions {
  readonly clock: Clock;
  readonly target: { readonly host?: string; readonly port: number };
  readonly random?: Random;
}

interface Held {
  /** Null is the end of the stream. */
  readonly data: Buffer | null;
  readonly dueAt: number;
}

export class FaultProxy implements AsyncDisposable {
  readonly #options: FaultProxyOptions;
  #target: FaultProxyOptions["target"];
  readonly #links = new Set<Link>();
  readonly #toxics: Record<Direction, Toxic[]> = { upstream: [], downstream: [] };
  #server: Server | undefined;
  #port = 0;
  #accepted = 0;

  static async start(options: FaultProxyOptions): Promise<FaultProxy> {
    const proxy = new FaultProxy(options);
    await proxy.up();
    return proxy;
  }

  private constructor(options: FaultProxyOptions) {
    this.#options = options;
    this.#target = options.target;
  }

  get port(): number {
    return this.#port;
  }

  /** Connections ever accepted, and those open now. */
  get accepted(): number {
    return this.#accepted;
  }

  get open(): number {
    return this.#links.size;
  }

  /** From now on, on connections that are open too. Dispose it to take it away. */
  add(direction: Direction, toxic: Toxic): Disposable {
    this.#toxics[direction].push(toxic);
    for (const link of this.#links) link.schedule(toxic);
    return {
      [Symbol.dispose]: () => {
        this.#toxics[direction] = this.#toxics[direction].filter((other) => other !== toxic);
      },
    };
  }

  clear(): void {
    this.#toxics.upstream = [];
    this.#toxics.downstream = [];
  }

  /** Takes no connections and breaks those that are open. */
  async down(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    this.resetAll();
    if (server === undefined) return;
    server.close();
    await once(server, "close");
  }

  /** Listens again, on the same port as before. */
  async up(): Promise<void> {
    if (this.#server !== undefined) return;
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket));
    server.listen(this.#port, "127.0.0.1");
    await once(server, "listening");
    this.#server = server;
    this.#port = (server.address() as AddressInfo).port;
  }

  /** What is behind the address is another server from now on; open connections break. */
  retarget(port: number): void {
    this.#target = { port };
    this.resetAll();
  }

  resetAll(): void {
    for (const link of this.#links) link.end("reset");
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.down();
  }

  #accept(client: Socket): void {
    this.#accepted += 1;
    const { clock, random = seededRandom(1) } = this.#options;
    const target = this.#target;
    const server = connect({ host: target.host ?? "127.0.0.1", port: target.port, allowHalfOpen: true, noDelay: true });
    const link = new Link({
      clock,
      random,
      client,
      server,
      toxics: this.#toxics,
      ended: () => this.#links.delete(link),
    });
    this.#links.add(link);
    for (const toxic of [...this.#toxics.upstream, ...this.#toxics.downstream]) link.schedule(toxic);
  }
}

interface LinkDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly client: Socket;
  readonly server: Socket;
  readonly toxics: Readonly<Record<Direction, readonly Toxic[]>>;
  readonly ended: () => void;
}

/** One client's connection and the one behind it. */
class Link {
  readonly #deps: LinkDeps;
  readonly #stop = new AbortController();

  constructor(deps: LinkDeps) {
    this.#deps = deps;
    const { client, server } = deps;
    void this.#pump(client, server, "upstream");
    void this.#pump(server, client, "downstream");
    for (const socket of [client, server]) {
      socket.on("error", () => this.end("reset"));
      socket.on("close", () => {
        if (client.destroyed && server.destroyed) this.end("close");
      });
    }
  }

  /** The toxics that act on the connection as a whole, by time. */
  schedule(toxic: Toxic): void {
    if (toxic.kind !== "reset_peer" && (toxic.kind !== "timeout" || toxic.timeoutMs === 0)) return;
    const how = toxic.kind === "reset_peer" ? "reset" : "close";
    const timer = this.#deps.clock.after(toxic.timeoutMs, () => {
      if ([...this.#deps.toxics.upstream, ...this.#deps.toxics.downstream].includes(toxic)) this.end(how);
    });
    this.#stop.signal.addEventListener("abort", () => timer.cancel(), { once: true });
  }

  end(how: "reset" | "close"): void {
    if (this.#stop.signal.aborted) return;
    this.#stop.abort(new Error("the connection has ended"));
    for (const socket of [this.#deps.client, this.#deps.server]) {
      if (how === "reset") resetSocket(socket);
      else socket.destroySoon();
    }
    this.#deps.ended();
  }

  /** Reads ahead by at most HELD_BYTES_MAX, so that a latency delays each piece once and not one after the other. */
  async #pump(from: Socket, to: Socket, direction: Direction): Promise<void> {
    const held: Held[] = [];
    let bytes = 0;
    let wake = (): void => {};
    const take = (data: Buffer | null): void => {
      held.push({ data, dueAt: this.#dueAt(direction) });
      bytes += data?.length ?? 0;
      if (bytes >= HELD_BYTES_MAX) from.pause();
      wake();
    };
    from.on("data", take);
    from.on("end", () => take(null));
    this.#stop.signal.addEventListener("abort", () => wake(), { once: true });
    const passed = { bytes: 0 };
    try {
      for (;;) {
        const next = held.shift();
        if (next === undefined) {
          if (this.#stop.signal.aborted) return;
          await new Promise<void>((resolve) => (wake = resolve));
          continue;
        }
        await this.#sleep(next.dueAt - this.#deps.clock.mono());
        if (next.data === null) return await this.#passEnd(to, direction);
        await this.#passData(to, direction, next.data, passed);
        bytes -= next.data.length;
        if (bytes < HELD_BYTES_MAX) from.resume();
      }
    } catch (error) {
      if (!this.#stop.signal.aborted) throw error; // Else a wait was cut short by the connection's end.
    }
  }

  async #passData(to: Socket, direction: Direction, data: Buffer, passed: { bytes: number }): Promise<void> {
    if (this.#find(direction, "timeout") !== undefined) return;
    for (const [index, piece] of this.#slices(direction, data).entries()) {
      const delayMs = this.#find(direction, "slicer")?.delayMs ?? 0;
      if (index > 0) await this.#sleep(delayMs);
      const limit = this.#find(direction, "limit_data");
      const allowed = limit === undefined ? piece : piece.subarray(0, Math.max(0, limit.bytes - passed.bytes));
      passed.bytes += allowed.length;
      await this.#write(to, allowed);
      if (limit !== undefined && passed.bytes >= limit.bytes) return this.end("close");
      const rate = this.#find(direction, "bandwidth")?.bytesPerS;
      if (rate !== undefined) await this.#sleep((allowed.length / rate) * 1_000);
    }
  }

  async #passEnd(to: Socket, direction: Direction): Promise<void> {
    if (this.#find(direction, "timeout") !== undefined) return;
    await this.#sleep(this.#find(direction, "slow_close")?.delayMs ?? 0);
    to.end();
  }

  #slices(direction: Direction, data: Buffer): Buffer[] {
    const slicer = this.#find(direction, "slicer");
    const rate = this.#find(direction, "bandwidth")?.bytesPerS;
    // A slow line gives its bytes evenly, a tenth of a second's worth at a time, not a whole read at once.
    const even = rate === undefined ? data.length : Math.max(1, Math.floor(rate / 10));
    const slices: Buffer[] = [];
    for (let at = 0; at < data.length;) {
      const spread = ((this.#deps.random.next() * 2 - 1) * (slicer?.variationBytes ?? 0)) | 0;
      const size = Math.max(1, Math.min(even, slicer === undefined ? even : slicer.averageBytes + spread));
      slices.push(data.subarray(at, at + size));
      at += size;
    }
    return slices;
  }

  #dueAt(direction: Direction): number {
    const now = this.#deps.clock.mono();
    const latency = this.#find(direction, "latency");
    if (latency === undefined) return now;
    const jitter = (this.#deps.random.next() * 2 - 1) * (latency.jitterMs ?? 0);
    return now + Math.max(0, latency.latencyMs + jitter);
  }

  #find<K extends Toxic["kind"]>(direction: Direction, kind: K): Extract<Toxic, { kind: K }> | undefined {
    return this.#deps.toxics[direction].find((toxic): toxic is Extract<Toxic, { kind: K }> => toxic.kind === kind);
  }

  async #sleep(ms: number): Promise<void> {
    if (ms > 0) await this.#deps.clock.sleep(ms, this.#stop.signal);
  }

  async #write(to: Socket, data: Buffer): Promise<void> {
    if (data.length === 0 || to.write(data)) return;
    await once(to, "drain", { signal: this.#stop.signal });
  }
}
