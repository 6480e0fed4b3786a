import { WebSocketServer } from "ws";
import {
  LINK_CLOSE,
  LINK_FRAME_BYTES_MAX,
  type AgentMessage,
  type ControlMessage,
  type Lead,
  type Verb,
} from "../../contract/agent-link.ts";
import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import type { NodeReport, RemovedWeights } from "../../contract/fleet.ts";
import { isAnotherMachine } from "../../decide/fleet/judge-newcomer.ts";
import { RegistrationQueue } from "../../decide/fleet/registration-queue.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import { randomKey } from "../../kernel/ids.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Secret } from "../../kernel/secret.ts";
import { refuseUpgrade, type Upgrade } from "../api/upgrades.ts";
import type { ControlStore } from "../store/control-store.ts";
import { AgentConnection } from "./agent-connection.ts";
import { type Admitted, AgentDoor, type Entrance, TRY_AGAIN, type Visitor } from "./agent-door.ts";
import { NumberProofs } from "./number-proofs.ts";
import { PendingAnswers } from "./pending-answers.ts";

/**
 * All agents that have dialled this control plane, leading or not.
 *
 * Invariants:
 *   G1. A connection speaks for the node of its credential and for no other; one that does not is closed, and told of.
 *   G2. A node has one connection: the newest one replaces the others, but for one of another machine while that of the first is heard.
 *   G3. Commands go only to connections on which this term's `lead` was said before, with numbers that grow for each node as
 *       long as the term lasts, whatever connections come and go.
 *   G4. A node that was shut out is disconnected, at the latest by the next sweep.
 *   G5. No node's word raises a number that the cluster never gave out.
 */
const REGISTRATIONS_EVERY_MS = 20;
const WAITING_MAX = 4_096;
const SWEEP_MS = 60_000;
const LOGS_MS_MAX = 5_000;
/** Large files take a while to go; whoever asked is not kept waiting longer than a client waits. */
const COLLECTION_MS_MAX = 20_000;

export interface AgentLinkPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly store: Pick<
    ControlStore,
    "clusterId" | "clusterSecret" | "redeemToken" | "checkCredential" | "renewCredential" | "enrolledNodes"
  >;
  readonly controlId: string;
  /** Where agents can dial all control planes. */
  readonly controls: readonly string[];
  /** How often an agent is to report, in ms. */
  readonly heartbeatMs: () => number;
  /** How long a command may be carried out after it was sent, in ms. */
  readonly commandLifeMs: number;
  readonly onReport: (report: NodeReport, at: MonoMs) => void;
  /** A node has connected. */
  readonly onWelcome: () => void;
  readonly onEvent: (event: NewEvent) => void;
}

/** A term as commands of it are addressed. */
interface Leading {
  readonly lead: Lead;
  /** Part of every command's id. */
  readonly mark: string;
  readonly seqs: Map<string, number>;
}

/** Who has knocked and waits for a turn. */
interface Waiting {
  readonly upgrade: Upgrade;
  readonly shown: Secret;
  readonly peer: string;
}

export class AgentLinkServer {
  readonly #ports: AgentLinkPorts;
  readonly #sockets = new WebSocketServer({
    noServer: true,
    maxPayload: LINK_FRAME_BYTES_MAX,
    perMessageDeflate: false,
    clientTracking: false,
  });
  readonly #door: AgentDoor;
  readonly #queue: RegistrationQueue<Waiting>;
  readonly #connections = new Map<string, AgentConnection>();
  /** Every open connection, those that have not been welcomed included. */
  readonly #open = new Set<AgentConnection>();
  readonly #proofs: NumberProofs;
  readonly #logs: PendingAnswers<readonly string[]>;
  readonly #collections: PendingAnswers<readonly RemovedWeights[]>;
  #leading: Leading | null = null;
  #nextTimer: Timer | undefined;
  #sweepTimer: Timer;
  #isClosed = false;

  constructor(ports: AgentLinkPorts) {
    const { clock } = ports;
    this.#ports = ports;
    this.#door = new AgentDoor({ ...ports, leads: () => this.#leading !== null });
    this.#queue = new RegistrationQueue({ everyMs: REGISTRATIONS_EVERY_MS, waitingMax: WAITING_MAX }, clock.mono());
    this.#proofs = new NumberProofs(ports.store.clusterSecret);
    this.#logs = new PendingAnswers(clock, "logs", LOGS_MS_MAX);
    this.#collections = new PendingAnswers(clock, "collections", COLLECTION_MS_MAX);
    this.#sweepTimer = clock.after(SWEEP_MS, () => void this.#sweep());
  }

  /** Names of the nodes that are connected, by id. */
  get nodes(): ReadonlyMap<string, string> {
    return new Map([...this.#connections].map(([nodeId, { node }]) => [nodeId, node]));
  }

  isConnected(nodeId: string): boolean {
    return this.#connections.has(nodeId);
  }

  get count(): number {
    return this.#connections.size;
  }

  /** Those that wait for their turn to connect. */
  get waiting(): number {
    return this.#queue.size;
  }

  upgrade(upgrade: Upgrade): void {
    const knock = this.#door.knock(upgrade.credential);
    if (knock.kind === "refused") {
      refuseUpgrade(upgrade.socket, knock.code, knock.why);
      return;
    }
    const waiting: Waiting = { upgrade, shown: knock.shown, peer: upgrade.req.socket.remoteAddress ?? "" };
    if (this.#isClosed || !this.#queue.offer(waiting, waiting.peer)) {
      refuseUpgrade(upgrade.socket, "AGENT_LINK_BUSY", "too many agents are waiting to connect");
      return;
    }
    upgrade.socket.once("close", () => this.#queue.leave(waiting, waiting.peer));
    this.#admitNext();
  }

  /** Says to every agent that this control plane leads; null: no longer. */
  lead(lead: Lead | null): void {
    this.#leading = lead === null ? null : { lead, mark: randomKey("").slice(0, 12), seqs: new Map() };
    if (lead === null) return;
    for (const connection of this.#connections.values()) connection.send(this.#leadWords(lead));
  }

  #leadWords(lead: Lead): Extract<ControlMessage, { type: "lead" }> {
    return { type: "lead", ...lead, proof: this.#proofs.ofTerm(lead) };
  }

  /**
   * Without effect while the node is not connected, or takes no more: the next pass sees that and asks again. `commit`: of the
   * store, that the command stands on; 0 for what changes nothing.
   */
  send(nodeId: string, verb: Verb, commit: number): void {
    const connection = this.#connections.get(nodeId);
    const leading = this.#leading;
    if (connection === undefined || leading === null) return;
    const seq = (leading.seqs.get(nodeId) ?? 0) + 1;
    leading.seqs.set(nodeId, seq);
    const command: Extract<ControlMessage, { type: "command" }> = {
      type: "command",
      ...leading.lead,
      seq,
      commit,
      commitProof: commit === 0 ? "" : this.#proofs.ofCommit(leading.lead.clusterId, commit),
      commandId: `${leading.mark}-${seq}`,
      validForMs: this.#ports.commandLifeMs,
      verb,
    };
    connection.command(command);
  }

  /** The last lines of an engine's log. Throws SHARD_UNKNOWN, or UPSTREAM_UNAVAILABLE when the node does not answer. */
  logs(nodeId: string, replicaId: string, lines: number): Promise<readonly string[]> {
    return this.#logs.ask(nodeId, (requestId) => this.send(nodeId, { kind: "logs", requestId, replicaId, lines }, 0));
  }

  /** Asks a node to remove weights from its cache; it has the last word on each. Throws NODE_SILENT when it does not answer. */
  collect(nodeId: string, names: readonly string[]): Promise<readonly RemovedWeights[]> {
    return this.#collections.ask(nodeId, (requestId) =>
      this.send(nodeId, { kind: "collect", requestId, names: [...names] }, 0),
    );
  }

  /** For a node that was shut out. */
  disconnect(nodeId: string, why: string): void {
    this.#connections.get(nodeId)?.close(LINK_CLOSE.unauthorized, why);
  }

  close(): void {
    this.#isClosed = true;
    this.#nextTimer?.cancel();
    this.#sweepTimer.cancel();
    for (const connection of this.#open) connection.terminate("the control plane stops");
    this.#sockets.close();
  }

  #admitNext(): void {
    if (this.#nextTimer !== undefined || this.#isClosed) return;
    const { clock } = this.#ports;
    const { nextAt } = this.#queue;
    if (nextAt === null) return;
    this.#nextTimer = clock.after(Math.max(0, nextAt - clock.mono()), () => {
      this.#nextTimer = undefined;
      const next = this.#queue.take(clock.mono());
      if (next !== undefined) void this.#admit(next);
      this.#admitNext();
    });
  }

  async #admit({ upgrade, shown, peer }: Waiting): Promise<void> {
    const look = await this.#door.look(shown, peer);
    if (this.#isClosed || upgrade.socket.destroyed) return;
    if (look.kind === "refused") {
      refuseUpgrade(upgrade.socket, look.code, look.why);
      return;
    }
    this.#sockets.handleUpgrade(upgrade.req, upgrade.socket, upgrade.head, (socket) => {
      const connection = new AgentConnection(socket, {
        clock: this.#ports.clock,
        onHello: (message) => this.#enter(look.visitor, message),
        onEntered: (admitted) => this.#welcome(connection, admitted),
        onMessage: (message) => this.#onMessage(connection, message),
        onClose: (why) => this.#onClose(connection, why),
      });
      this.#open.add(connection);
    });
  }

  /** G2. A one-time token is another matter: somebody wants the node to be this machine from now on. */
  #enter(visitor: Visitor, hello: Extract<AgentMessage, { type: "hello" }>): Promise<Entrance> {
    const { clock, heartbeatMs, log, onEvent } = this.#ports;
    const there = visitor.kind === "node" ? this.#connections.get(visitor.found.nodeId) : undefined;
    if (there === undefined) return this.#door.enter(visitor, hello);
    const { nodeId, node, bootId } = there;
    if (!isAnotherMachine({ bootId, silentMs: clock.mono() - there.heardAt }, hello.bootId, heartbeatMs()))
      return this.#door.enter(visitor, hello);
    if (there.isNews("another machine")) {
      const why = `another machine shows the credential of node ${node}, which is connected, and is not let in: a copied data folder, or a stolen one`;
      log.error("agent.another_machine", { node, node_id: nodeId });
      onEvent(controlEvent("credentialRefused", why, { nodeId }));
    }
    return Promise.resolve({ kind: "refused", close: TRY_AGAIN, why: "the node is connected from another machine" });
  }

  #welcome(connection: AgentConnection, { nodeId, node, credential }: Admitted): void {
    const { store, controlId, controls, heartbeatMs, log } = this.#ports;
    const older = this.#connections.get(nodeId);
    this.#connections.set(nodeId, connection);
    older?.close(LINK_CLOSE.replaced, "a newer connection of this node took over");
    connection.send({
      type: "welcome",
      clusterId: store.clusterId,
      controlId,
      nodeId,
      credential: credential?.reveal() ?? null,
      heartbeatMs: heartbeatMs(),
      controls: [...controls],
    });
    if (this.#leading !== null) connection.send(this.#leadWords(this.#leading.lead));
    log.info("agent.connected", { node, node_id: nodeId, replaced: older !== undefined });
    this.#ports.onWelcome();
  }

  #onMessage(connection: AgentConnection, message: Exclude<AgentMessage, { type: "hello" | "ping" | "pong" }>): void {
    const { nodeId } = connection;
    switch (message.type) {
      case "report": {
        const { report } = message;
        if (report.nodeId !== nodeId) this.#expose(connection, report.nodeId);
        else this.#heard(connection, report);
        break;
      }
      case "result": {
        const verb = connection.resultOf(message.commandId);
        if (message.outcome === "refused" || message.outcome === "failed") this.#onRefused(connection, verb, message);
        break;
      }
      case "logs":
        this.#logs.answer(message.requestId, nodeId, message.lines);
        break;
      case "collected":
        this.#collections.answer(message.requestId, nodeId, message.results);
    }
  }

  /** G5. The name is what the node was enrolled under, whatever it calls itself now. */
  #heard(connection: AgentConnection, said: NodeReport): void {
    const { clock, store, log, onEvent, onReport } = this.#ports;
    const { nodeId, node } = connection;
    const { report, forged } = this.#proofs.proven(said, store.clusterId);
    if (forged && !connection.forged) {
      connection.forged = true;
      const why = `node ${node} reported an epoch or a commit that no control plane of this cluster gave it: its word on that is not heard`;
      log.error("agent.unproven_number", { node, node_id: nodeId });
      onEvent(controlEvent("credentialRefused", why, { nodeId }));
    }
    onReport(report.name === node ? report : { ...report, name: node }, clock.mono());
  }

  /** G1. */
  #expose(connection: AgentConnection, claimed: string): void {
    const { nodeId, node } = connection;
    const why = `node ${node} reported as another node (${JSON.stringify(claimed.slice(0, 64))}): its connection was closed`;
    this.#ports.log.error("agent.foreign_report", { node, node_id: nodeId });
    this.#ports.onEvent(controlEvent("credentialRefused", why, { nodeId }));
    connection.close(LINK_CLOSE.unauthorized, "a credential speaks for its own node");
  }

  #onRefused(
    connection: AgentConnection,
    verb: Verb | undefined,
    { code, why, outcome }: Extract<AgentMessage, { type: "result" }>,
  ): void {
    const { nodeId, node } = connection;
    if (verb?.kind === "logs") this.#logs.refuse(verb.requestId, nodeId, code ?? "", why ?? "");
    if (verb?.kind === "collect") this.#collections.refuse(verb.requestId, nodeId, code ?? "", why ?? "");
    const replicaId = verb !== undefined && "replicaId" in verb ? verb.replicaId : null;
    this.#ports.log.warn("command.refused", { node, replica: replicaId, verb: verb?.kind ?? null, code, outcome });
    const words = `node ${node} ${outcome} to ${verb?.kind ?? "carry out a command"}: ${code ?? "no code"} ${why ?? ""}`;
    if (verb?.kind !== "logs" && connection.isNews(`${replicaId ?? ""} ${verb?.kind ?? ""} ${code ?? ""}`))
      this.#ports.onEvent(controlEvent("commandRefused", words, { nodeId, replicaId }));
  }

  #onClose(connection: AgentConnection, why: string): void {
    this.#open.delete(connection);
    const { nodeId, node } = connection;
    if (this.#connections.get(nodeId) !== connection) return;
    this.#connections.delete(nodeId);
    this.#logs.gone(nodeId);
    this.#collections.gone(nodeId);
    this.#ports.log.info("agent.disconnected", { node, node_id: nodeId, why });
  }

  /** G4; and agents whose credential is old enough are asked to come again, since only then it can be renewed safely. */
  async #sweep(): Promise<void> {
    try {
      const enrolled = await this.#ports.store.enrolledNodes();
      for (const [nodeId, connection] of this.#connections)
        if (!enrolled.has(nodeId)) connection.close(LINK_CLOSE.unauthorized, "the node was shut out");
      if (this.#leading !== null) await this.#door.sweep(this.#connections.values(), this.#ports.clock.mono());
    } catch (error) {
      this.#ports.log.warn("agent.sweep_failed", { why: messageOf(error) });
    }
    if (!this.#isClosed) this.#sweepTimer = this.#ports.clock.after(SWEEP_MS, () => void this.#sweep());
  }
}
