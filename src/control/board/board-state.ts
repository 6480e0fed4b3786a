import {
  type BoardTable,
  type BoardTables,
  type ClusterState,
  type GpuTile,
  type TopLine,
} from "../../contract/board.ts";
import type { LeaderAnswer } from "../../contract/control-api.ts";
import type { StoredEvent } from "../../contract/control-event.ts";
import { RowTable, type RowMaking, type TableChange } from "../../decide/board/row-table.ts";
import { type StateView, stateSentence } from "../../decide/board/state-sentence.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { ClusterSnapshot, ClusterView } from "../view/cluster-view.ts";
import { capacity } from "../view/status-parts.ts";
import { gatewayViews, modelViews, nodeViews, replicaViews } from "../view/views.ts";
import { gatewayRow, gpuRow, holders, nodeRow, replicaRow, Since } from "./board-rows.ts";
import type { GatewayDesk } from "./gateway-desk.ts";
import type { GatewayPoll } from "./gateway-poll.ts";
import { stateView } from "./state-view.ts";

export interface BoardStatePorts {
  readonly clock: Clock;
  readonly view: Pick<ClusterView, "snapshot" | "gateways">;
  readonly desk: GatewayDesk;
  readonly poll: GatewayPoll;
  readonly events: (query: { readonly limit: number; readonly afterSeq?: number }) => Promise<readonly StoredEvent[]>;
  readonly bounded: <T>(work: Promise<T>) => Promise<T>;
  /** What needs no look into the fleet. */
  readonly about: () => Omit<ClusterState, "restored" | "capacity" | "spend" | "gatewaysTell" | "catalog"> & {
    readonly catalog: Pick<ClusterState["catalog"], "held" | "refused">;
  };
  readonly leader: () => LeaderAnswer;
}

/** What has changed since the look before; a part that has not is null. */
export interface StateChange {
  readonly tables: ReadonlyMap<BoardTable, TableChange>;
  readonly top: string | null;
  readonly cluster: string | null;
  readonly moneyTop: string | null;
}

const EVENTS_SHOWN = 200;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/**
 * All that boards show, as the texts that are sent.
 *
 * Invariants:
 *   B1. Everything in it is of one look; while a look goes on nobody reads it.
 *   B2. A look gives way between tables: requests of others have their turns.
 */
export class BoardState {
  readonly #ports: BoardStatePorts;
  readonly #tables: { readonly [T in BoardTable]: RowTable<BoardTables[T]> } = {
    nodes: new RowTable(),
    gpus: new RowTable(),
    models: new RowTable(),
    replicas: new RowTable(),
    upstreams: new RowTable(),
    jobs: new RowTable(),
    overflow: new RowTable(),
    approvals: new RowTable(),
    gateways: new RowTable(),
    events: new RowTable(),
  };
  readonly #since = new Since();
  #events: StoredEvent[] = [];
  #snapshot: ClusterSnapshot | null = null;
  #top = "";
  #moneyTop = "";
  #cluster = "";

  constructor(ports: BoardStatePorts) {
    this.#ports = ports;
  }

  get top(): string {
    return this.#top;
  }

  /** For whoever looks after money alone. */
  get moneyTop(): string {
    return this.#moneyTop;
  }

  get cluster(): string {
    return this.#cluster;
  }

  texts(table: BoardTable): ReadonlyMap<string, string> {
    return this.#tables[table].texts;
  }

  /** Never rejects: what can't be read now stays as it was, and the top line says what is silent. */
  async look(): Promise<StateChange> {
    const { view, bounded, clock } = this.#ports;
    const [snapshot] = await Promise.all([bounded(view.snapshot()).catch(() => null), this.#readEvents()]);
    this.#snapshot = snapshot ?? this.#snapshot;
    const now = clock.wall();
    const changes = new Map<BoardTable, TableChange>();
    if (this.#snapshot !== null) await this.#lookAtFleet(this.#snapshot, now, changes);
    this.#lookAtGateways(now, changes);
    return { tables: changes, ...this.#say(now) };
  }

  async #lookAtFleet(snapshot: ClusterSnapshot, now: number, changes: Map<BoardTable, TableChange>): Promise<void> {
    const when = { since: this.#since, now };
    const { nodes, use } = snapshot;
    const inFlight = requestsByNode(snapshot);
    const views = nodeViews(snapshot).map((node, at) => ({ node, seen: nodes[at]! }));
    this.#replace("nodes", changes, views, {
      keyOf: ({ node }) => node.id,
      source: () => [],
      make: ({ node, seen }) => nodeRow(node, seen, inFlight.get(node.id) ?? null, when),
    });
    await turn();
    const held = holders(snapshot.replicas);
    const heard = nodes.filter(({ state, report }) => state === "ready" && report !== null && report.gpus.length > 0);
    this.#replace("gpus", changes, heard, {
      keyOf: ({ doc }) => doc.id,
      source: (seen) => [seen.doc.name, seen.report, heldText(seen.report?.gpus ?? [], held)],
      make: (seen) => gpuRow(seen, held),
    });
    await turn();
    this.#replace("models", changes, modelViews(snapshot), {
      keyOf: ({ name }) => name,
      source: () => [],
      make: (row) => row,
    });
    await turn();
    const replicas = replicaViews(snapshot);
    this.#replace("replicas", changes, replicas, {
      keyOf: ({ id }) => id,
      source: () => [],
      make: (row) => {
        const known = use.get(row.id);
        return replicaRow(row, known?.idleMs ?? null, known?.inFlight ?? null, when);
      },
    });
    await turn();
  }

  #lookAtGateways(now: number, changes: Map<BoardTable, TableChange>): void {
    const { view, desk, poll } = this.#ports;
    const when = { since: this.#since, now };
    const seen = view.gateways();
    const tells = new Set(desk.peers.map(({ id }) => id));
    const gateways = gatewayViews(seen).map((gateway, at) => ({ gateway, seen: seen[at]! }));
    this.#replace("gateways", changes, gateways, {
      keyOf: ({ gateway }) => gateway.id,
      source: () => [],
      make: (each) => gatewayRow(each.gateway, each.seen, tells.has(each.gateway.id), when),
    });
    this.#replace("upstreams", changes, desk.rows(), {
      keyOf: ({ id }) => id,
      source: (row) => [row],
      make: (row) => row,
    });
    const { jobs, overflow, approvals } = poll.polled;
    this.#replace("jobs", changes, jobs.values(), {
      keyOf: ({ id }) => id,
      source: (row) => [row],
      make: (row) => row,
    });
    this.#replace("overflow", changes, overflow.values(), {
      keyOf: ({ upstream }) => upstream,
      source: (row) => [row],
      make: (row) => row,
    });
    this.#replace("approvals", changes, approvals, {
      keyOf: ([key]) => key,
      source: ([, row]) => [row],
      make: ([, row]) => row,
    });
    this.#replace("events", changes, this.#events, {
      keyOf: ({ seq }) => String(seq),
      source: ({ seq }) => [seq],
      make: (row) => row,
    });
  }

  #replace<K extends BoardTable, T>(
    table: K,
    changes: Map<BoardTable, TableChange>,
    rows: Iterable<T>,
    making: RowMaking<T, BoardTables[K]>,
  ): void {
    const change = (this.#tables[table] as RowTable<BoardTables[K]>).replace(rows, making);
    if (change.set.length > 0 || change.gone.length > 0) changes.set(table, change);
  }

  #say(now: number): Pick<StateChange, "top" | "cluster" | "moneyTop"> {
    const { desk, poll, about, leader, view } = this.#ports;
    const snapshot = this.#snapshot;
    const said = { ...about() };
    const cluster: ClusterState = {
      ...said,
      restored: snapshot?.restored ?? false,
      catalog: {
        revision: snapshot?.catalog.revision ?? 0,
        models: snapshot?.catalog.models.size ?? 0,
        held: said.catalog.held,
        refused: said.catalog.refused,
      },
      capacity: snapshot === null ? [] : capacity(snapshot),
      spend: poll.polled.spend,
      gatewaysTell: desk.tells,
    };
    const whole: StateView = stateView({
      snapshot,
      cluster,
      leader: leader(),
      gateways: view.gateways(),
      upstreams: desk.rows(),
      waitedBefore: (id) => desk.waitedAt(id, now - 60_000),
      polled: poll.polled,
    });
    const money = { ...EMPTY_VIEW, ...pickMoney(whole) };
    const told = {
      top: this.#changed(JSON.stringify(stateSentence(whole)), this.#top),
      moneyTop: this.#changed(JSON.stringify(moneySentence(money)), this.#moneyTop),
      cluster: this.#changed(JSON.stringify(cluster), this.#cluster),
    };
    this.#top = told.top ?? this.#top;
    this.#moneyTop = told.moneyTop ?? this.#moneyTop;
    this.#cluster = told.cluster ?? this.#cluster;
    return told;
  }

  #changed(text: string, before: string): string | null {
    return text === before ? null : text;
  }

  async #readEvents(): Promise<void> {
    const { events, bounded } = this.#ports;
    const last = this.#events.at(-1)?.seq;
    try {
      const found = await bounded(
        events(last === undefined ? { limit: EVENTS_SHOWN } : { limit: 1_000, afterSeq: last }),
      );
      const sorted = found.toSorted((one, other) => one.seq - other.seq);
      this.#events = [...this.#events, ...sorted].slice(-EVENTS_SHOWN);
    } catch {
      // The top line says that the store is silent.
    }
  }
}

function requestsByNode({ nodes, replicas, use }: ClusterSnapshot): ReadonlyMap<string, number> {
  const counts = new Map(nodes.map(({ doc }) => [doc.id, 0]));
  for (const { id, state, shards } of replicas) {
    if (state === "stopped" || state === "failed") continue;
    const known = use.get(id)?.inFlight;
    for (const { nodeId } of shards) {
      // One that nobody knows of makes the sum unknown.
      const sum = counts.get(nodeId);
      if (sum === undefined) continue;
      if (known === undefined && state !== "ready" && state !== "draining") continue;
      if (known === undefined) counts.delete(nodeId);
      else counts.set(nodeId, sum + known);
    }
  }
  return counts;
}

const heldText = (gpus: readonly { readonly uuid: string }[], held: ReadonlyMap<string, GpuTile["held"]>): string =>
  gpus.map(({ uuid }) => (held.get(uuid) ?? []).map(({ replica }) => replica).join()).join(";");

const EMPTY_VIEW: StateView = {
  led: true,
  storeSilentS: null,
  restored: false,
  catalogHeld: null,
  catalogRefused: null,
  nodes: [],
  sickGpus: [],
  models: [],
  starting: 0,
  upstreams: [],
  gateways: [],
  approvalsAsked: [],
  haltedTiers: [],
  overflowStopped: null,
  gpus: { cards: 0, used: 0 },
};

const pickMoney = ({ approvalsAsked, haltedTiers, overflowStopped }: StateView): Partial<StateView> => ({
  approvalsAsked,
  haltedTiers,
  overflowStopped,
});

/** Whoever looks after money alone is not told of a fleet that they don't see. */
function moneySentence(view: StateView): TopLine {
  const said = stateSentence(view);
  return said.severity === "ok" ? { ...said, sentence: "No job waits for an approval, and no tier has halted." } : said;
}
