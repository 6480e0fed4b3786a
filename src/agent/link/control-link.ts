import {
  LINK_FRAME_BYTES_MAX,
  LINK_PATH,
  readControlFrame,
  writeFrame,
  type AgentMessage,
  type ControlMessage,
  type Lead,
  type SaidLead,
} from "../../contract/agent-link.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import { DialledLink, type DialPorts, type LinkLanguage } from "../../link/dialled-link.ts";
import type { Secret } from "../../kernel/secret.ts";

const LANGUAGE: LinkLanguage<ControlMessage, AgentMessage> = {
  path: LINK_PATH,
  frameBytesMax: LINK_FRAME_BYTES_MAX,
  read: readControlFrame,
  write: writeFrame,
};

export interface LinkEvents {
  readonly onWelcome: (link: ControlLink, message: Extract<ControlMessage, { type: "welcome" }>) => void;
  readonly onLead: (link: ControlLink, lead: SaidLead) => void;
  readonly onCommand: (
    link: ControlLink,
    message: Extract<ControlMessage, { type: "command" }>,
    receivedAt: MonoMs,
  ) => void;
}

export interface LinkPorts
  extends LinkEvents, Pick<DialPorts<ControlMessage, AgentMessage>, "clock" | "random" | "log" | "hello" | "tls"> {
  /** What to show; null while it is another connection's turn to enrol. `refused`: what was shown last was not accepted. */
  readonly bearer: (link: ControlLink, refused: boolean) => Secret | null;
}

/**
 * An agent's connection to one control plane. What that said on one connection is forgotten with it; it leads only after saying
 * so again.
 */
export class ControlLink {
  readonly #link: DialledLink<ControlMessage, AgentMessage>;
  #heartbeatMs: number | null = null;
  /** What this control plane said of itself on this connection, once the agent has kept it. */
  lead: Lead | null = null;
  /** The same before it was kept; the last that was said. */
  said: SaidLead | null = null;

  constructor(url: string, ports: LinkPorts) {
    this.#link = new DialledLink(url, LANGUAGE, {
      ...ports,
      bearer: (refused) => ports.bearer(this, refused),
      onMessage: (message, receivedAt) => this.#take(message, receivedAt, ports),
      onEnd: () => {
        this.#heartbeatMs = null;
        this.lead = null;
        this.said = null;
      },
    });
  }

  get url(): string {
    return this.#link.url;
  }

  /** When the last ping was sent that the other side answered: it has heard what was said until then. */
  get provenAlive(): MonoMs {
    return this.#link.provenAlive;
  }

  /** Null until it was welcomed. */
  get heartbeatMs(): number | null {
    return this.#heartbeatMs;
  }

  welcomed(heartbeatMs: number): void {
    this.#heartbeatMs = heartbeatMs;
    this.#link.welcome();
  }

  /** False when there is no connection, or it can't take more; nothing is kept for later. */
  send(message: AgentMessage): boolean {
    return this.#link.send(message);
  }

  /** Ends this connection; another one follows. */
  drop(code: number, why: string): void {
    this.#link.drop(code, why);
  }

  /** Dials, and dials again. Ends by abort. */
  run(signal: AbortSignal): Promise<void> {
    return this.#link.run(signal);
  }

  #take(message: ControlMessage, receivedAt: MonoMs, ports: LinkEvents): void {
    switch (message.type) {
      case "welcome":
        ports.onWelcome(this, message);
        break;
      case "lead":
        this.said = {
          clusterId: message.clusterId,
          epoch: message.epoch,
          holder: message.holder,
          proof: message.proof,
        };
        ports.onLead(this, this.said);
        break;
      case "command":
        ports.onCommand(this, message, receivedAt);
        break;
      default: // The link itself answers pings.
    }
  }
}
