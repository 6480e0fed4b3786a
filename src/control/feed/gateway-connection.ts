import type { WebSocket } from "ws";
import { isSameLead, LINK_CLOSE } from "../../contract/agent-link.ts";
import {
  type FeedMark,
  type FeedMessage,
  type GatewayMessage,
  type GatewayReport,
  readGatewayFrame,
  writeFeedFrame,
} from "../../contract/feed.ts";
import { ToldReadings } from "../../decide/feed/gpu-readings.ts";
import { asMono, type Clock, type MonoMs, type Timer } from "../../kernel/clock.ts";
import { PeerSocket } from "../link/peer-socket.ts";
import type { GatewaySeen } from "../view/cluster-view.ts";

const HELLO_MS_MAX = 10_000;
const HELD_BYTES_MAX = 4 * 1024 * 1024;
/** Codes of WebSocket for an end that was meant. */
const GOODBYES: ReadonlySet<number> = new Set([1000, 1001]);

type Said = Exclude<GatewayMessage, { type: "ping" | "pong" }>;

export interface GatewayConnectionPorts {
  readonly clock: Clock;
  /** Of the credential that let it in; null: an ordinary key. */
  readonly credentialName: string | null;
  readonly onHello: () => void;
  readonly onMessage: (message: Exclude<Said, { type: "hello" }>) => void;
  readonly onClose: (how: "goodbye" | "broken", why: string) => void;
}

/** One gateway's connection, and how far it has been told. */
export class GatewayConnection {
  readonly credentialName: string | null;
  readonly #ports: GatewayConnectionPorts;
  readonly #peer: PeerSocket<Said>;
  readonly #helloTimer: Timer;
  #hello: {
    readonly id: string;
    readonly name: string;
    readonly version: string;
    readonly have: FeedMark | null;
    readonly board: boolean;
  } | null = null;
  #report: GatewayReport | null = null;
  #reportedAt: MonoMs | null = null;
  /** The version that it was sent last; null: it needs the whole state. */
  at: number | null = null;
  /** When it was last sent the whole state. */
  wholeAt: MonoMs = asMono(Number.NEGATIVE_INFINITY);
  /** What it was told of cards. */
  readonly readings = new ToldReadings();

  constructor(socket: WebSocket, ports: GatewayConnectionPorts) {
    this.#ports = ports;
    this.credentialName = ports.credentialName;
    this.#peer = new PeerSocket<Said>(socket, {
      clock: ports.clock,
      read: readGatewayFrame,
      heldBytesMax: HELD_BYTES_MAX,
      onMessage: (message) => this.#take(message),
      onClose: (code, why) => {
        this.#helloTimer.cancel();
        ports.onClose(GOODBYES.has(code) ? "goodbye" : "broken", why);
      },
    });
    this.#helloTimer = ports.clock.after(HELLO_MS_MAX, () => this.close(LINK_CLOSE.protocol, "no hello came"));
  }

  /** Of one that never said hello all is empty. */
  get hello(): {
    readonly id: string;
    readonly name: string;
    readonly version: string;
    readonly have: FeedMark | null;
  } {
    return this.#hello ?? { id: "", name: "", version: "", have: null };
  }

  get id(): string {
    return this.hello.id;
  }

  get name(): string {
    return this.hello.name;
  }

  get tellsBoards(): boolean {
    return this.#hello?.board === true;
  }

  get hasReadAll(): boolean {
    return this.#peer.heldBytes === 0;
  }

  /** It has that version from before. */
  isCurrent(version: number): void {
    this.at = version;
    this.wholeAt = this.#ports.clock.mono();
  }

  tell(message: FeedMessage, version: number | null): void {
    this.tellFrame(writeFeedFrame(message), version);
  }

  /** What is no part of the state. False: it can't take it now. */
  say(message: FeedMessage): boolean {
    return this.#peer.send(writeFeedFrame(message));
  }

  /** What it can't take it has not been told: it is sent the whole state later. */
  tellFrame(frame: string, version: number | null): void {
    this.at = this.#peer.send(frame) ? version : null;
  }

  seen(now: MonoMs, mark: FeedMark | null): GatewaySeen {
    const { id, name, version } = this.hello;
    const report = this.#report;
    const have = report?.have ?? null;
    const isOfTerm = have !== null && mark !== null && isSameLead(have, mark);
    return {
      id,
      name,
      version,
      silentMs: this.#reportedAt === null ? null : now - this.#reportedAt,
      at: isOfTerm ? have.version : null,
      behind: mark !== null && mark.version > 0 && !(isOfTerm && have.version === mark.version),
      waiting: Object.values(report?.demand ?? {}).reduce((sum, { waiting }) => sum + waiting, 0),
      inFlight: Object.values(report?.used ?? {}).reduce((sum, { inFlight }) => sum + inFlight, 0),
      jobs: report?.jobs ?? null,
    };
  }

  close(code: number, why: string): void {
    this.#peer.close(code, why);
  }

  terminate(why: string): void {
    this.#peer.terminate(why);
  }

  #take(message: Said): void {
    if (message.type === "hello") {
      if (this.#hello !== null) {
        this.close(LINK_CLOSE.protocol, "a second hello");
        return;
      }
      this.#helloTimer.cancel();
      const { gatewayId, name, version, have, board = false } = message;
      this.#hello = { id: gatewayId, name: this.credentialName ?? name, version, have, board };
      this.#ports.onHello();
      return;
    }
    if (this.#hello === null) {
      this.close(LINK_CLOSE.protocol, "a message before the hello");
      return;
    }
    if (message.type === "report") {
      this.#report = message;
      this.#reportedAt = this.#ports.clock.mono();
    }
    this.#ports.onMessage(message);
  }
}
