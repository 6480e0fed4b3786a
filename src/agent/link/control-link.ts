import { WebSocket } from "ws";
import {
  LINK_CLOSE,
  LINK_DEAD_MS,
  LINK_FRAME_BYTES_MAX,
  LINK_PATH,
  PING_EVERY_MS,
  readControlFrame,
  writeFrame,
  type AgentMessage,
  type ControlMessage,
  type Lead,
} from "../../contract/agent-link.ts";
import { HELD_MS_MIN, redialDelay, type LinkEnd } from "../../decide/agent/reconnect.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { Secret } from "../../kernel/secret.ts";

/**
 * The connection to one control plane, dialled again for as long as the agent runs.
 *
 * Invariants:
 *   K1. A connection lives only as long as the other side answers pings: what comes in without an answer proves one direction
 *       only.
 *   K2. What a control plane said on one connection is forgotten with it; it leads only after saying so again.
 *   K3. A frame that can't be read ends the connection; what it held is in no log.
 */
const OPEN_MS_MAX = 10_000;
const LOOK_EVERY_MS = 1_000;
/** Reports give way to a connection that is slower than they are: each holds all that matters. */
const HELD_BYTES_MAX = 2 * LINK_FRAME_BYTES_MAX;
const WAIT_FOR_TURN_MS = 1_000;

export interface LinkEvents {
  readonly onWelcome: (link: ControlLink, message: Extract<ControlMessage, { type: "welcome" }>) => void;
  readonly onLead: (link: ControlLink, lead: Lead) => void;
  readonly onCommand: (
    link: ControlLink,
    message: Extract<ControlMessage, { type: "command" }>,
    receivedAt: MonoMs,
  ) => void;
}

export interface LinkPorts extends LinkEvents {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** What to show; null while it is another connection's turn to enrol. `refused`: what was shown last was not accepted. */
  readonly bearer: (link: ControlLink, refused: boolean) => Secret | null;
  readonly hello: () => AgentMessage;
  /** PEM; undefined for the system's own. */
  readonly ca: string | undefined;
}

export class ControlLink {
  readonly url: string;
  readonly #ports: LinkPorts;
  #socket: WebSocket | null = null;
  #openedAt: MonoMs | null = null;
  #provenAlive: MonoMs;
  #heartbeatMs: number | null = null;
  #pings = 0;
  #pingedAt: MonoMs;
  #lastEnd = "";
  /** What this control plane said of itself on this connection, once the agent has kept it. */
  lead: Lead | null = null;

  constructor(url: string, ports: LinkPorts) {
    this.url = url;
    this.#ports = ports;
    this.#provenAlive = ports.clock.mono();
    this.#pingedAt = this.#provenAlive;
  }

  /** When the last ping was sent that the other side answered: it has heard what was said until then. */
  get provenAlive(): MonoMs {
    return this.#provenAlive;
  }
  /** Null until it was welcomed. */
  get heartbeatMs(): number | null {
    return this.#heartbeatMs;
  }

  welcomed(heartbeatMs: number): void {
    this.#heartbeatMs = heartbeatMs;
  }

  /** False when there is no connection, or it can't take more; nothing is kept for later. */
  send(message: AgentMessage): boolean {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN || socket.bufferedAmount > HELD_BYTES_MAX) return false;
    socket.send(writeFrame(message));
    return true;
  }

  /** Ends this connection; another one follows. */
  drop(code: number, why: string): void {
    this.#ports.log.warn("link.dropped", { control: this.url, why });
    this.#socket?.close(code, why.slice(0, 100));
    this.#ports.clock.after(LOOK_EVERY_MS, () => this.#socket?.terminate());
  }

  /** Dials, and dials again. Ends by abort. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#ports;
    let refused = false;
    while (!signal.aborted) {
      const bearer = this.#ports.bearer(this, refused);
      let delayMs = WAIT_FOR_TURN_MS;
      if (bearer !== null) {
        const end = await this.#connect(bearer, signal);
        refused = end.kind === "refused";
        delayMs = redialDelay(end, random.next());
      }
      if (!signal.aborted) await clock.sleep(delayMs, signal).catch(() => {});
    }
  }

  #connect(bearer: Secret, signal: AbortSignal): Promise<LinkEnd> {
    const { clock, ca } = this.#ports;
    return new Promise((resolve) => {
      let refused = false;
      const socket = new WebSocket(`${this.url}${LINK_PATH}`, {
        headers: { authorization: `Bearer ${bearer.reveal()}` },
        handshakeTimeout: OPEN_MS_MAX,
        maxPayload: LINK_FRAME_BYTES_MAX,
        perMessageDeflate: false,
        ...(ca === undefined ? {} : { ca }),
      });
      this.#socket = socket;
      const onAbort = (): void => socket.close(1001, "the agent stops");
      signal.addEventListener("abort", onAbort, { once: true });
      let timer: Timer | null = null;
      socket.on("open", () => {
        this.#openedAt = clock.mono();
        this.#provenAlive = this.#openedAt;
        this.#pingedAt = this.#openedAt;
        socket.send(writeFrame(this.#ports.hello()));
        timer = this.#watch(socket);
      });
      socket.on("message", (data, isBinary) => {
        if (isBinary || !Buffer.isBuffer(data)) this.drop(LINK_CLOSE.protocol, "a binary frame");
        else this.#take(data.toString("utf8"));
      });
      socket.on("unexpected-response", (request, response) => {
        refused = response.statusCode === 401 || response.statusCode === 403;
        this.#tellEnd(`refused with status ${response.statusCode}`);
        response.resume();
        request.destroy();
        socket.terminate();
      });
      socket.on("error", (error) => this.#tellEnd(error.message));
      socket.on("close", (code) => {
        timer?.cancel();
        signal.removeEventListener("abort", onAbort);
        const heldMs = this.#openedAt === null ? 0 : clock.mono() - this.#openedAt;
        if (this.#openedAt !== null) this.#tellEnd(`closed with code ${code}`);
        if (code === LINK_CLOSE.unauthorized) refused = true;
        this.#forget();
        resolve(refused ? { kind: "refused" } : { kind: "ended", heldMs });
      });
    });
  }

  #forget(): void {
    this.#socket = null;
    this.#openedAt = null;
    this.#heartbeatMs = null;
    this.lead = null;
  }

  /** Pings, and ends a connection whose other side answers none, or does not welcome. */
  #watch(socket: WebSocket): Timer {
    const { clock } = this.#ports;
    let timer: Timer;
    const look = (): void => {
      const now = clock.mono();
      const silentMs = now - this.#provenAlive;
      if (silentMs > LINK_DEAD_MS || (this.#heartbeatMs === null && silentMs > OPEN_MS_MAX)) {
        this.#tellEnd(
          this.#heartbeatMs === null ? "no welcome came" : `no answer for ${Math.round(silentMs / 1_000)} s`,
        );
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
    const frame = readControlFrame(text);
    if (frame.kind === "unknown") return;
    if (frame.kind === "invalid") {
      this.drop(LINK_CLOSE.protocol, frame.why);
      return;
    }
    const { message } = frame;
    switch (message.type) {
      case "ping":
        this.send({ type: "pong", n: message.n });
        break;
      case "pong":
        // It counts from when the ping left: an answer that lay in a buffer while this process stood still proves nothing about now.
        if (message.n === this.#pings) this.#provenAlive = this.#pingedAt;
        break;
      case "welcome":
        this.#lastEnd = "";
        this.#ports.onWelcome(this, message);
        break;
      case "lead":
        this.#ports.onLead(this, { clusterId: message.clusterId, epoch: message.epoch, holder: message.holder });
        break;
      default:
        this.#ports.onCommand(this, message, receivedAt);
    }
  }

  /** The same end is told once: a control plane that is away for a day is no reason for a line every half minute. */
  #tellEnd(why: string): void {
    if (why === this.#lastEnd) return;
    this.#lastEnd = why;
    const heldMs = this.#openedAt === null ? 0 : this.#ports.clock.mono() - this.#openedAt;
    this.#ports.log.warn("link.down", { control: this.url, why, held: heldMs >= HELD_MS_MIN });
  }
}
