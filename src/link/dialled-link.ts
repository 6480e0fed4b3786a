import { WebSocket } from "ws";
import type { ReadFrame } from "../contract/frames.ts";
import { LINK_CLOSE, LINK_DEAD_MS, PING_EVERY_MS } from "../contract/agent-link.ts";
import { failuresAfter, HELD_MS_MIN, redialDelay, type LinkEnd } from "../decide/link/redial.ts";
import type { Clock, MonoMs, Timer } from "../kernel/clock.ts";
import type { Logger } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import { messageOf } from "../kernel/errors.ts";
import type { Secret } from "../kernel/secret.ts";
import type { LinkTls } from "./link-tls.ts";

/**
 * The connection to one control plane, dialled again for as long as whoever dials it runs. Pings are answered and sent here; all
 * else goes to the owner.
 *
 * Invariants:
 *   K1. A connection lives only as long as the other side answers pings: what comes in without an answer proves one direction
 *       only.
 *   K2. A frame that can't be read ends the connection; what it held is in no log.
 *   K3. Nothing is kept for later: what can't be sent now is not sent.
 */
const OPEN_MS_MAX = 10_000;
const LOOK_EVERY_MS = 1_000;
const WAIT_FOR_TURN_MS = 1_000;

type Beat = { readonly type: "ping" | "pong"; readonly n: number };

/** What is spoken on the link, as seen from the side that dials. */
export interface LinkLanguage<In, Out> {
  readonly path: string;
  readonly frameBytesMax: number;
  readonly read: (frame: string) => ReadFrame<In | Beat>;
  readonly write: (message: Out | Beat) => string;
}

export interface DialPorts<In, Out> {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** What to show; null while there is nothing to show yet. `refused`: what was shown last was not accepted. */
  readonly bearer: (refused: boolean) => Secret | null;
  /** The first words of each connection. */
  readonly hello: () => Out;
  readonly onMessage: (message: In, receivedAt: MonoMs) => void;
  /** What was said on the connection that has ended holds no longer. */
  readonly onEnd: () => void;
  /** Asked before each try, so that renewed certificates are used. */
  readonly tls: () => Promise<LinkTls>;
}

const isBeat = (message: object): message is Beat =>
  "type" in message && (message.type === "ping" || message.type === "pong");

export class DialledLink<In extends object, Out extends object> {
  readonly url: string;
  readonly #language: LinkLanguage<In, Out>;
  readonly #ports: DialPorts<In, Out>;
  #socket: WebSocket | null = null;
  #openedAt: MonoMs | null = null;
  #welcomed = false;
  #provenAlive: MonoMs;
  #pings = 0;
  #pingedAt: MonoMs;
  #lastEnd = "";
  #lastTls: LinkTls = {};

  constructor(url: string, language: LinkLanguage<In, Out>, ports: DialPorts<In, Out>) {
    this.url = url;
    this.#language = language;
    this.#ports = ports;
    this.#provenAlive = ports.clock.mono();
    this.#pingedAt = this.#provenAlive;
  }

  /** When the last ping was sent that the other side answered: it has heard what was said until then. */
  get provenAlive(): MonoMs {
    return this.#provenAlive;
  }

  /** Why the last connection ended, or could not be made; "" since the last welcome. */
  get lastEnd(): string {
    return this.#lastEnd;
  }

  get welcomed(): boolean {
    return this.#welcomed;
  }

  /** The other side has taken this one in; a connection without that is ended after a while. */
  welcome(): void {
    this.#welcomed = true;
    this.#lastEnd = "";
  }

  /** False when there is no connection, or it can't take more. */
  send(message: Out | Beat): boolean {
    const socket = this.#socket;
    // What is said gives way to a connection that is slower than it is: each message holds all that matters.
    if (socket?.readyState !== WebSocket.OPEN || socket.bufferedAmount > 2 * this.#language.frameBytesMax) return false;
    socket.send(this.#language.write(message));
    return true;
  }

  /** Ends this connection; another one follows. */
  drop(code: number, why: string): void {
    this.#ports.log.warn("link.dropped", { control: this.url, why });
    const socket = this.#socket;
    socket?.close(code, why.slice(0, 100));
    this.#ports.clock.after(LOOK_EVERY_MS, () => socket?.terminate());
  }

  /** Dials, and dials again. Ends by abort. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#ports;
    let refused = false;
    let failures = 0;
    while (!signal.aborted) {
      const bearer = this.#ports.bearer(refused);
      let delayMs = WAIT_FOR_TURN_MS;
      if (bearer !== null) {
        const end = await this.#connect(bearer, await this.#tls(), signal);
        refused = end.kind === "refused";
        failures = failuresAfter(end, failures);
        delayMs = redialDelay(end, failures, random.next());
      }
      if (!signal.aborted) await clock.sleep(delayMs, signal).catch(() => {});
    }
  }

  /** What was read last serves where it can't be read now. */
  async #tls(): Promise<LinkTls> {
    try {
      this.#lastTls = await this.#ports.tls();
    } catch (error) {
      this.#ports.log.warn("link.tls_unread", { control: this.url, why: messageOf(error) });
    }
    return this.#lastTls;
  }

  #connect(bearer: Secret, tls: LinkTls, signal: AbortSignal): Promise<LinkEnd> {
    const { clock } = this.#ports;
    const { path, frameBytesMax } = this.#language;
    return new Promise((resolve) => {
      let refused = false;
      const socket = new WebSocket(`${this.url}${path}`, {
        headers: { authorization: `Bearer ${bearer.reveal()}` },
        handshakeTimeout: OPEN_MS_MAX,
        maxPayload: frameBytesMax,
        perMessageDeflate: false,
        ...tls,
      });
      this.#socket = socket;
      // What this side ends is no news.
      const tellEnd = (why: string): void => {
        if (!signal.aborted) this.#tellEnd(why);
      };
      const onAbort = (): void => socket.close(1001, "this side stops");
      signal.addEventListener("abort", onAbort, { once: true });
      let timer: Timer | null = null;
      socket.on("open", () => {
        this.#openedAt = clock.mono();
        this.#provenAlive = this.#openedAt;
        this.#pingedAt = this.#openedAt;
        socket.send(this.#language.write(this.#ports.hello()));
        timer = this.#watch(socket);
      });
      socket.on("message", (data, isBinary) => {
        if (isBinary || !Buffer.isBuffer(data)) this.drop(LINK_CLOSE.protocol, "a binary frame");
        else this.#take(data.toString("utf8"));
      });
      socket.on("unexpected-response", (request, response) => {
        refused = response.statusCode === 401 || response.statusCode === 403;
        tellEnd(`refused with status ${response.statusCode}`);
        response.resume();
        request.destroy();
        socket.terminate();
      });
      socket.on("error", (error) => tellEnd(error.message));
      socket.on("close", (code, reason) => {
        timer?.cancel();
        signal.removeEventListener("abort", onAbort);
        const heldMs = this.#openedAt === null ? 0 : clock.mono() - this.#openedAt;
        if (this.#openedAt !== null) tellEnd(`closed with code ${code} ${reason.toString("utf8")}`.trim());
        if (code === LINK_CLOSE.unauthorized) refused = true;
        this.#socket = null;
        this.#openedAt = null;
        this.#welcomed = false;
        this.#ports.onEnd();
        resolve(refused ? { kind: "refused" } : { kind: "ended", heldMs });
      });
    });
  }

  /** Pings, and ends a connection whose other side answers none, or does not welcome. */
  #watch(socket: WebSocket): Timer {
    const { clock } = this.#ports;
    let timer: Timer;
    const look = (): void => {
      const now = clock.mono();
      const silentMs = now - this.#provenAlive;
      if (silentMs > LINK_DEAD_MS || (!this.#welcomed && silentMs > OPEN_MS_MAX)) {
        this.#tellEnd(this.#welcomed ? `no answer for ${Math.round(silentMs / 1_000)} s` : "no welcome came");
        socket.terminate();
        return;
      }
      if (now - this.#pingedAt >= PING_EVERY_MS) {
        this.#pingedAt = now;
        this.#pings += 1;
        this.send({ type: "ping", n: this.#pings });
      }
      timer = clock.after(LOOK_EVERY_MS, look);
    };
    timer = clock.after(LOOK_EVERY_MS, look);
    return { cancel: () => timer.cancel() };
  }

  #take(text: string): void {
    const receivedAt = this.#ports.clock.mono();
    const frame = this.#language.read(text);
    if (frame.kind === "unknown") return;
    if (frame.kind === "invalid") {
      this.drop(LINK_CLOSE.protocol, frame.why);
      return;
    }
    const { message } = frame;
    if (!isBeat(message)) this.#ports.onMessage(message, receivedAt);
    else if (message.type === "ping") this.send({ type: "pong", n: message.n });
    // It counts from when the ping left: an answer that lay in a buffer while this process stood still proves nothing about now.
    else if (message.n === this.#pings) this.#provenAlive = this.#pingedAt;
  }

  /** The same end is told once: a control plane that is away for a day is no reason for a line every half minute. */
  #tellEnd(why: string): void {
    if (why === this.#lastEnd) return;
    this.#lastEnd = why;
    const heldMs = this.#openedAt === null ? 0 : this.#ports.clock.mono() - this.#openedAt;
    this.#ports.log.warn("link.down", { control: this.url, why, held: heldMs >= HELD_MS_MIN });
  }
}
