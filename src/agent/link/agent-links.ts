import { isSafeControlUrl, parseControlUrl } from "../../contract/agent-schema.ts";
import { LINK_CLOSE, type AgentMessage, type ControlMessage } from "../../contract/agent-link.ts";
import { hashKey } from "../../contract/key-hash.ts";
import { bareControlUrl } from "../../contract/resolve-agent.ts";
import { messageOf } from "../../kernel/errors.ts";
import { Secret } from "../../kernel/secret.ts";
import type { AgentState } from "../state/agent-state.ts";
import { ControlLink, type LinkPorts } from "./control-link.ts";

/**
 * Connections to all control planes of the cluster, so that a standby that becomes leader has every agent already.
 *
 * Invariants:
 *   M1. A one-time token is shown by one connection at a time, and never again after it was accepted.
 *   M2. A credential is on the disk before it is used.
 *   M3. Addresses that control planes tell of are only dialled if they are as safe as configured ones must be.
 */
const CONTROLS_MAX = 16;

export interface LinksPorts extends Omit<LinkPorts, "bearer" | "onWelcome" | "hello"> {
  readonly state: AgentState;
  readonly configured: readonly string[];
  readonly token: Secret | null;
  readonly hello: (nodeId: string | null) => AgentMessage;
  /** The node is known to this control plane now. */
  readonly onReady: () => void;
}

export class AgentLinks {
  readonly #ports: LinksPorts;
  readonly #links = new Map<string, ControlLink>();
  readonly #tokenHash: string | null;
  readonly #runs = new Set<Promise<void>>();
  #enrolling: ControlLink | null = null;
  #tokenSpent = false;
  #toldNoToken = false;
  #signal: AbortSignal | null = null;

  constructor(ports: LinksPorts) {
    this.#ports = ports;
    this.#tokenHash = ports.token === null ? null : hashKey(ports.token.reveal());
  }

  /** The shortest interval that a control plane asked for; null while there is no connection. */
  get heartbeatMs(): number | null {
    const asked = [...this.#links.values()].map((link) => link.heartbeatMs).filter((ms) => ms !== null);
    return asked.length === 0 ? null : Math.min(...asked);
  }

  run(signal: AbortSignal): void {
    this.#signal = signal;
    this.#dial([...this.#ports.configured, ...this.#ports.state.controls]);
  }

  /** Resolves when all connections are closed. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#runs);
  }

  /** To every control plane that knows the node. */
  broadcast(message: AgentMessage): void {
    for (const link of this.#links.values()) if (link.heartbeatMs !== null) link.send(message);
  }

  #dial(urls: readonly string[]): void {
    const signal = this.#signal;
    if (signal === null) return;
    for (const url of urls) {
      if (this.#links.has(url) || this.#links.size >= CONTROLS_MAX) continue;
      const link = new ControlLink(url, {
        ...this.#ports,
        bearer: (asking, refused) => this.#bearer(asking, refused),
        hello: () => this.#ports.hello(this.#ports.state.membership?.nodeId ?? null),
        onWelcome: (from, message) => void this.#welcome(from, message),
      });
      this.#links.set(url, link);
      const run = link.run(signal).finally(() => this.#runs.delete(run));
      this.#runs.add(run);
    }
  }

  #bearer(link: ControlLink, refused: boolean): Secret | null {
    const { state, token, log } = this.#ports;
    const { membership } = state;
    if (this.#enrolling === link) {
      this.#enrolling = null;
      if (refused) {
        this.#tokenSpent = true;
        log.error("enrol.refused", { control: link.url, message: "the token was not accepted: make a new one" });
      }
    }
    const unused = token !== null && !this.#tokenSpent && this.#tokenHash !== membership?.tokenHash;
    // A credential that is not accepted any more beside a token that was not used yet: the node is enrolled anew.
    if (membership !== null && !(refused && unused)) return membership.credential;
    if (unused && this.#enrolling === null) {
      this.#enrolling = link;
      return token;
    }
    if (!unused && !this.#toldNoToken) {
      this.#toldNoToken = true;
      log.error("enrol.no_token", { message: "the node is not enrolled, and has no one-time token that can be used" });
    }
    return null;
  }

  async #welcome(link: ControlLink, message: Extract<ControlMessage, { type: "welcome" }>): Promise<void> {
    const { state, log } = this.#ports;
    const { clusterId, nodeId, credential } = message;
    const { membership } = state;
    const enrolled = this.#enrolling === link;
    if (membership !== null && membership.clusterId !== clusterId && !enrolled) {
      link.drop(LINK_CLOSE.protocol, `this node belongs to cluster ${membership.clusterId}`);
      return;
    }
    if (credential === null && (membership === null || enrolled)) {
      link.drop(LINK_CLOSE.protocol, "a welcome without a credential for a node that has none");
      return;
    }
    try {
      if (credential !== null) {
        const tokenHash = enrolled ? this.#tokenHash : (membership?.tokenHash ?? null);
        await state.keepMembership({ clusterId, nodeId, credential: new Secret(credential), tokenHash });
        log.info(enrolled ? "node.enrolled" : "credential.renewed", { node: nodeId, cluster: clusterId });
      }
      await this.#learn(message.controls);
    } catch (error) {
      link.drop(1011, messageOf(error));
      return;
    } finally {
      if (enrolled) this.#enrolling = null;
    }
    link.welcomed(Math.min(60_000, Math.max(200, message.heartbeatMs)));
    log.info("link.up", { control: link.url, node: nodeId });
    this.#ports.onReady();
  }

  async #learn(told: readonly string[]): Promise<void> {
    const safe = told.flatMap((text) => {
      const url = parseControlUrl(text);
      return url !== null && isSafeControlUrl(url) ? [bareControlUrl(text)] : [];
    });
    const next = [...new Set([...this.#ports.state.controls, ...safe])]
      .filter((url) => !this.#ports.configured.includes(url))
      .slice(-CONTROLS_MAX);
    if (next.join() !== this.#ports.state.controls.join()) await this.#ports.state.keepControls(next);
    this.#dial(safe);
  }
}
