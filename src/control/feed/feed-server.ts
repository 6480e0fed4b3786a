import { WebSocketServer } from "ws";
import { isSameLead, type Lead, LINK_CLOSE } from "../../contract/agent-link.ts";
import {
  FEED_REPORT_BYTES_MAX,
  FEED_WHOLE_EVERY_MS,
  type FeedMark,
  type GatewayMessage,
  writeFeedFrame,
} from "../../contract/feed.ts";
import type { GpuReport } from "../../contract/fleet.ts";
import { GATEWAY_RULES, GatewayReports } from "../../decide/feed/gateway-reports.ts";
import { GpuReadings } from "../../decide/feed/gpu-readings.ts";
import { diffFeed, type FeedState, NO_FEED } from "../../decide/feed/make-feed.ts";
import { NO_USE, type ReplicaUse } from "../../decide/reconcile/snapshot.ts";
import type { LeaderTerm } from "../../decide/leader/lease-claim.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Secret } from "../../kernel/secret.ts";
import { refuseUpgrade, type Upgrade } from "../api/upgrades.ts";
import type { GatewayDesk } from "../board/gateway-desk.ts";
import type { GatewaySeen } from "../view/cluster-view.ts";
import { GatewayConnection } from "./gateway-connection.ts";

/**
 * All gateways that have dialled this control plane.
 *
 * Invariants:
 *   W1. Only a leader tells a state, and only what is committed; a version is told to all or superseded by a higher one.
 *   W2. A gateway gets a change only over the version that it was sent before, else the whole state.
 *   W3. Who does not read gets nothing more until it has read all, and then one whole state: nothing is queued for it.
 *   W4. What agents read of cards is told by a leader alone, to those who have its state and have read all; else it is left out.
 */
const REPORT_MS = 1_000;
const LOOK_MS = 1_000;
const CONNECTIONS_MAX = 512;
const SWEEP_MS = 60_000;
/** A gateway that asks for the whole state again and again gets it this often. */
const WHOLE_MS_MIN = 1_000;

export type GatewayCheck =
  | { readonly kind: "ok"; readonly name: string | null }
  | {
      readonly kind: "refused";
      readonly code: "UNAUTHORIZED" | "FORBIDDEN" | "STORE_UNAVAILABLE";
      readonly why: string;
    };

export interface FeedPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly clusterId: string;
  readonly controlId: string;
  /** How long after the start of a term gateways may still be on their way, in ms. */
  readonly gatherMs: number;
  /** Who the credential lets in. `name`: of the gateway that it was made for; null for an ordinary key. */
  readonly check: (credential: Secret | null, peer: string) => Promise<GatewayCheck>;
  /** Names of the gateways whose credentials hold. */
  readonly enrolled: () => Promise<readonly string[]>;
  /** Something that a pass may act upon was reported. */
  readonly onNews: () => void;
  /** What they are for the board. */
  readonly board: Pick<GatewayDesk, "joined" | "left" | "take">;
}

interface Term {
  readonly mark: Lead;
  readonly begunAt: MonoMs;
  state: FeedState;
  /** 0 until something was published. */
  version: number;
  /** The frame of the whole state; null until somebody needs it. */
  whole: string | null;
  /** Since which version a replica drains. */
  readonly draining: Map<string, number>;
}

export class FeedServer {
  readonly #ports: FeedPorts;
  readonly #sockets = new WebSocketServer({
    noServer: true,
    maxPayload: FEED_REPORT_BYTES_MAX,
    perMessageDeflate: false,
    clientTracking: false,
  });
  readonly #reports: GatewayReports;
  readonly #readings = new GpuReadings();
  readonly #open = new Set<GatewayConnection>();
  readonly #byId = new Map<string, GatewayConnection>();
  #term: Term | null = null;
  #demanded = "";
  #timer: Timer;
  #sweepTimer: Timer;
  #isClosed = false;

  constructor(ports: FeedPorts) {
    this.#ports = ports;
    this.#reports = new GatewayReports({ ...GATEWAY_RULES, gatherMs: ports.gatherMs });
    this.#timer = ports.clock.after(LOOK_MS, () => this.#look());
    this.#sweepTimer = ports.clock.after(SWEEP_MS, () => void this.#sweep());
  }

  /** A term begins, or this control plane no longer leads. */
  lead(term: LeaderTerm | null): void {
    const { clusterId, clock } = this.#ports;
    for (const { readings } of this.#byId.values()) readings.clear();
    if (term === null) {
      this.#term = null;
      for (const connection of this.#byId.values()) connection.tell({ type: "standby" }, null);
      return;
    }
    this.#term = {
      mark: { clusterId, epoch: term.epoch, holder: term.holder },
      begunAt: clock.mono(),
      state: NO_FEED,
      version: 0,
      whole: null,
      draining: new Map(),
    };
  }

  /** What is committed now. */
  publish(state: FeedState): void {
    const term = this.#term;
    if (term === null) return;
    const before = term.version;
    const change = before === 0 ? null : diffFeed(term.state, state);
    if (before > 0 && change === null) return;
    term.state = state;
    term.version += 1;
    term.whole = null;
    for (const id of term.draining.keys()) if (state.endpoints.get(id)?.draining !== true) term.draining.delete(id);
    for (const [id, { draining }] of state.endpoints)
      if (draining && !term.draining.has(id)) term.draining.set(id, term.version);
    const frame =
      change === null ? null : writeFeedFrame({ type: "change", mark: this.#mark(term), from: before, ...change });
    for (const connection of this.#byId.values()) {
      if (frame !== null && connection.at === before) connection.tellFrame(frame, term.version);
      else this.#tellWhole(connection, term);
    }
  }

  /** All cards that the agent of a node read, in a report that came at `at`. */
  heardCards(node: string, gpus: readonly GpuReport[], at: MonoMs): void {
    this.#readings.heard(node, gpus, at);
  }

  demanded(now: MonoMs): ReadonlySet<string> {
    return this.#reports.demanded(now);
  }

  idle(now: MonoMs): ReadonlySet<string> {
    const term = this.#term;
    if (term === null || term.draining.size === 0) return new Set();
    return this.#reports.idle(term.draining, term.mark, now - term.begunAt, now);
  }

  use(now: MonoMs): ReadonlyMap<string, ReplicaUse> {
    const term = this.#term;
    return term === null ? NO_USE : this.#reports.use(term.mark, now - term.begunAt, now);
  }

  get count(): number {
    return this.#byId.size;
  }

  gateways(): readonly GatewaySeen[] {
    const now = this.#ports.clock.mono();
    return [...this.#byId.values()].map((connection) =>
      connection.seen(now, this.#term === null ? null : this.#mark(this.#term)),
    );
  }

  upgrade(upgrade: Upgrade): void {
    if (this.#isClosed || this.#open.size >= CONNECTIONS_MAX) {
      refuseUpgrade(upgrade.socket, "AGENT_LINK_BUSY", "as many gateways are connected as may be");
      return;
    }
    void this.#admit(upgrade);
  }

  /** For gateways whose credential was taken back. */
  disconnect(name: string): void {
    for (const connection of this.#open)
      if (connection.credentialName === name)
        connection.close(LINK_CLOSE.unauthorized, "the credential was taken back");
  }

  close(): void {
    this.#isClosed = true;
    this.#timer.cancel();
    this.#sweepTimer.cancel();
    for (const connection of this.#open) connection.terminate("the control plane stops");
    this.#sockets.close();
  }

  async #admit({ req, socket, head, credential }: Upgrade): Promise<void> {
    const check = await this.#ports.check(credential, req.socket.remoteAddress ?? "");
    if (this.#isClosed || socket.destroyed) return;
    if (check.kind === "refused") {
      refuseUpgrade(socket, check.code, check.why);
      return;
    }
    this.#sockets.handleUpgrade(req, socket, head, (client) => {
      const connection = new GatewayConnection(client, {
        clock: this.#ports.clock,
        credentialName: check.name,
        onHello: () => this.#onHello(connection),
        onMessage: (message) => this.#onMessage(connection, message),
        onClose: (how, why) => this.#onClose(connection, how, why),
      });
      this.#open.add(connection);
    });
  }

  #onHello(connection: GatewayConnection): void {
    const { clusterId, controlId, log } = this.#ports;
    const { id, name, have } = connection.hello;
    const older = this.#byId.get(id);
    this.#byId.set(id, connection);
    older?.close(LINK_CLOSE.replaced, "a newer connection of this gateway took over");
    // Copies of one gateway may share a credential; on one machine there is one of that name.
    const { credentialName } = connection;
    this.#reports.connected(id, credentialName === null ? null : JSON.stringify([credentialName, name]));
    connection.tell({ type: "welcome", clusterId, controlId, reportMs: REPORT_MS }, null);
    log.info("gateway.connected", { gateway: name, id });
    this.#ports.board.joined(connection);
    const term = this.#term;
    if (term === null) connection.tell({ type: "standby" }, null);
    else if (term.version > 0 && have !== null && isSameMark(have, this.#mark(term)))
      connection.isCurrent(term.version);
    else if (term.version > 0) this.#tellWhole(connection, term);
  }

  #onMessage(
    connection: GatewayConnection,
    message: Exclude<GatewayMessage, { type: "hello" | "ping" | "pong" }>,
  ): void {
    if (message.type === "resync") {
      connection.at = null;
      return;
    }
    if (message.type !== "report") {
      this.#ports.board.take(connection, message);
      return;
    }
    const now = this.#ports.clock.mono();
    this.#reports.reported(connection.hello.id, message, now);
    const demanded = [...this.demanded(now)].toSorted().join("\n");
    if (demanded === this.#demanded && (this.#term?.draining.size ?? 0) === 0) return;
    this.#demanded = demanded;
    this.#ports.onNews();
  }

  #onClose(connection: GatewayConnection, how: "goodbye" | "broken", why: string): void {
    this.#open.delete(connection);
    this.#ports.board.left(connection);
    const { id, name } = connection.hello;
    if (this.#byId.get(id) !== connection) return;
    this.#byId.delete(id);
    this.#reports.left(id, how, this.#ports.clock.mono());
    this.#ports.log.info("gateway.disconnected", { gateway: name, id, why });
  }

  /**
   * Once a second: whoever is behind and has read all it was sent gets the whole state, and everybody once a minute. Then what is new
   * of cards.
   */
  #look(): void {
    const { clock, log } = this.#ports;
    const now = clock.mono();
    const term = this.#term;
    try {
      if (term !== null && term.version > 0) {
        for (const connection of this.#byId.values()) {
          const isBehind = connection.at !== term.version;
          const ageMs = now - connection.wholeAt;
          if (ageMs >= FEED_WHOLE_EVERY_MS || (isBehind && ageMs >= WHOLE_MS_MIN)) this.#tellWhole(connection, term);
          this.#tellReadings(connection, term, now);
        }
      }
    } catch (error) {
      log.error("feed.failed", { why: messageOf(error) });
    }
    this.#timer = clock.after(LOOK_MS, () => this.#look());
  }

  /** Another control plane may have taken a credential back. */
  async #sweep(): Promise<void> {
    try {
      const names = new Set(await this.#ports.enrolled());
      for (const { credentialName } of this.#open)
        if (credentialName !== null && !names.has(credentialName)) this.disconnect(credentialName);
    } catch (error) {
      this.#ports.log.warn("feed.sweep_failed", { why: messageOf(error) });
    }
    if (!this.#isClosed) this.#sweepTimer = this.#ports.clock.after(SWEEP_MS, () => void this.#sweep());
  }

  #tellWhole(connection: GatewayConnection, term: Term): void {
    if (!connection.hasReadAll) {
      connection.at = null;
      return;
    }
    // Made once for all: after a term's first pass every gateway needs it in the same moment.
    term.whole ??= writeFeedFrame({
      type: "state",
      mark: this.#mark(term),
      models: [...term.state.models.values()],
      endpoints: [...term.state.endpoints.values()],
    });
    connection.wholeAt = this.#ports.clock.mono();
    connection.tellFrame(term.whole, term.version);
  }

  /** W4. */
  #tellReadings(connection: GatewayConnection, term: Term, now: MonoMs): void {
    if (connection.at === null || !connection.hasReadAll) return;
    const nodes = connection.readings.next(this.#readings, now);
    if (nodes.length > 0) connection.tell({ type: "readings", mark: this.#mark(term), nodes }, connection.at);
  }

  #mark = ({ mark, version }: Term): FeedMark => ({ ...mark, version });
}

const isSameMark = (a: FeedMark, b: FeedMark): boolean => isSameLead(a, b) && a.version === b.version;
