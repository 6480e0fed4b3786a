import type { WebSocket } from "ws";
import {
  LINK_CLOSE,
  LINK_FRAME_BYTES_MAX,
  readAgentFrame,
  writeFrame,
  type AgentMessage,
  type ControlMessage,
  type Verb,
} from "../../contract/agent-link.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import type { Secret } from "../../kernel/secret.ts";
import type { Admitted, Entrance } from "./agent-door.ts";
import { PeerSocket } from "./peer-socket.ts";

const HELLO_MS_MAX = 10_000;
const HELD_BYTES_MAX = 2 * LINK_FRAME_BYTES_MAX;
/** Commands whose result has not come; results may be lost, so the oldest go. */
const COMMANDS_MAX = 1_000;
const TOLD_MAX = 200;

type Said = Exclude<AgentMessage, { type: "ping" | "pong" }>;
type Command = Extract<ControlMessage, { type: "command" }>;

export interface ConnectionPorts {
  readonly clock: Clock;
  readonly onHello: (message: Extract<AgentMessage, { type: "hello" }>) => Promise<Entrance>;
  readonly onEntered: (admitted: Admitted) => void;
  /** After it was admitted. */
  readonly onMessage: (message: Exclude<Said, { type: "hello" }>) => void;
  readonly onClose: (why: string) => void;
}

/** One agent's connection: hello, then what the node reports and is told. */
export class AgentConnection {
  readonly #ports: ConnectionPorts;
  readonly #peer: PeerSocket<Said>;
  readonly #commands = new Map<string, Verb>();
  readonly #told = new Set<string>();
  readonly #helloTimer: Timer;
  #greeted = false;
  #admitted: Admitted | null = null;
  /** It has reported a number that nobody gave out, and that was told of. */
  forged = false;
  /** When its credential was last looked at. */
  checkedAt: MonoMs;
  /** By its hello; empty before. */
  bootId = "";
  /** When its last message came. */
  heardAt: MonoMs;

  constructor(socket: WebSocket, ports: ConnectionPorts) {
    this.#ports = ports;
    this.checkedAt = ports.clock.mono();
    this.heardAt = this.checkedAt;
    this.#peer = new PeerSocket<Said>(socket, {
      clock: ports.clock,
      read: readAgentFrame,
      heldBytesMax: HELD_BYTES_MAX,
      onMessage: (message) => this.#take(message),
      onClose: (_code, why) => {
        this.#helloTimer.cancel();
        ports.onClose(why);
      },
    });
    this.#helloTimer = ports.clock.after(HELLO_MS_MAX, () => this.close(LINK_CLOSE.protocol, "no hello came"));
  }

  /** Empty until it was admitted. */
  get nodeId(): string {
    return this.#admitted?.nodeId ?? "";
  }

  get node(): string {
    return this.#admitted?.node ?? "";
  }

  /** What it will show next; null until it has shown a credential. */
  get credential(): Secret | null {
    return this.#admitted?.shown ?? null;
  }

  send(message: ControlMessage): boolean {
    return this.#peer.send(writeFrame(message));
  }

  command(command: Command): void {
    if (!this.send(command)) return;
    this.#commands.set(command.commandId, command.verb);
    for (const oldest of this.#commands.keys()) {
      if (this.#commands.size <= COMMANDS_MAX) break;
      this.#commands.delete(oldest);
    }
  }

  /** What the command asked for; undefined for one that was not sent here, or was answered before. */
  resultOf(commandId: string): Verb | undefined {
    const verb = this.#commands.get(commandId);
    this.#commands.delete(commandId);
    return verb;
  }

  /** For what is told once for each connection. */
  isNews(key: string): boolean {
    if (this.#told.has(key) || this.#told.size >= TOLD_MAX) return false;
    this.#told.add(key);
    return true;
  }

  close(code: number, why: string): void {
    this.#peer.close(code, why);
  }

  terminate(why: string): void {
    this.#peer.terminate(why);
  }

  #take(message: Said): void {
    this.heardAt = this.#ports.clock.mono();
    if (message.type === "hello") void this.#greet(message);
    else if (this.#admitted === null) this.close(LINK_CLOSE.protocol, "a message before the welcome");
    else this.#ports.onMessage(message);
  }

  async #greet(message: Extract<AgentMessage, { type: "hello" }>): Promise<void> {
    if (this.#greeted) {
      this.close(LINK_CLOSE.protocol, "a second hello");
      return;
    }
    this.#greeted = true;
    this.bootId = message.bootId;
    const entrance = await this.#ports.onHello(message);
    this.#helloTimer.cancel();
    if (entrance.kind === "refused") {
      this.close(entrance.close, entrance.why);
      return;
    }
    if (!this.#peer.isOpen) return;
    this.#admitted = entrance.admitted;
    this.#ports.onEntered(entrance.admitted);
  }
}
