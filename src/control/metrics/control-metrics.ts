import { CONTROL_METRICS, METRIC_NAMES_MAX } from "../../contract/control-metric-names.ts";
import type { GpuReport } from "../../contract/fleet.ts";
import type { MetricDefinition } from "../../contract/metric-definition.ts";
import { byModel } from "../../decide/reconcile/model-counts.ts";
import type { Clock } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import { collectProcessMetrics } from "../../metrics/process-metrics.ts";
import { Registry, type CounterFamily, type GaugeFamily, type HistogramFamily } from "../../metrics/registry.ts";
import { CONTENT_TYPE, negotiateFormat } from "../../metrics/render.ts";
import type { TraceStats } from "../../trace/tracer.ts";
import type { Board } from "../board/board.ts";
import type { CatalogKeeper } from "../catalog/catalog-keeper.ts";
import type { FeedServer } from "../feed/feed-server.ts";
import type { Leadership } from "../leader/leadership.ts";
import type { AgentLinkServer } from "../link/agent-link-server.ts";
import type { FinishedPass } from "../loop/term-loop.ts";
import type { ClusterSnapshot, SeenNode } from "../view/cluster-view.ts";
import { idleModels, statusParts } from "../view/status-parts.ts";
import { countBy, current, modelViews } from "../view/views.ts";

export interface ControlMetricsPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly leadership: Pick<Leadership, "view">;
  readonly keeper: Pick<CatalogKeeper, "snapshot">;
  readonly links: Pick<AgentLinkServer, "count" | "waiting">;
  readonly feed: Pick<FeedServer, "count">;
  /** Undefined: nothing is traced. */
  readonly traced: () => TraceStats | undefined;
  /** As the leader sees the cluster; null on a standby. */
  readonly seen: () => { readonly snapshot: ClusterSnapshot; readonly plan: FinishedPass["plan"] } | null;
}

/** The cluster as one page shows it. */
interface Figures {
  readonly snapshot: ClusterSnapshot;
  readonly plan: FinishedPass["plan"];
  readonly parts: ReturnType<typeof statusParts>;
}

type Key = keyof typeof CONTROL_METRICS;
type Set = (values: readonly string[], value: number | undefined) => void;

/** The control plane's page of metrics: read from the state at each scrape, so that no copy of it can drift. */
export class ControlMetrics {
  readonly #ports: ControlMetricsPorts;
  readonly #registry = new Registry();
  readonly #passes: CounterFamily;
  readonly #events: CounterFamily;
  readonly #passSeconds: HistogramFamily;
  readonly #boardBytes: CounterFamily;
  readonly #boardLooks: HistogramFamily;
  #board: Pick<Board, "hub" | "sessions"> | null = null;
  readonly #process: Disposable;
  /** Of the page that is being made; null until one of its families needs them. */
  #figures: Figures | null = null;

  constructor(ports: ControlMetricsPorts) {
    this.#ports = ports;
    this.#registry.hooks = {
      onCollectError: (metric, error) => ports.log.warn("metrics.collectFailed", { metric, why: messageOf(error) }),
    };
    this.#passes = this.#counter("passes");
    this.#events = this.#counter("fleetEvents");
    this.#passSeconds = this.#histogram("passSeconds");
    this.#boardBytes = this.#counter("boardBytes");
    this.#boardLooks = this.#histogram("boardLookSeconds");
    this.#collectOwn();
    this.#collectCluster();
    this.#process = collectProcessMetrics(
      {
        processRss: this.#gauge("processRss"),
        processHeap: this.#gauge("processHeap"),
        processCpu: this.#counter("processCpu"),
        uptime: this.#gauge("uptime"),
        eventLoopDelay: this.#gauge("eventLoopDelay"),
      },
      ports.clock,
    );
  }

  passed({ changed, tookMs, plan }: FinishedPass): void {
    for (const { kind } of plan.events) this.#events.labels(kind).inc();
    this.#passes.labels(changed ? "changed" : "unchanged").inc();
    this.#passSeconds.labels().observe(tookMs / 1_000);
  }

  useBoard(board: Pick<Board, "hub" | "sessions">): void {
    this.#board = board;
  }

  boardSent(bytes: number): void {
    this.#boardBytes.labels().inc(bytes);
  }

  boardLooked(seconds: number): void {
    this.#boardLooks.labels().observe(seconds);
  }

  /** In the format that the scraper asks for. */
  page(accept: string | undefined): { readonly type: string; readonly text: string } {
    const format = negotiateFormat(accept);
    try {
      return { type: CONTENT_TYPE[format], text: this.#registry.render(format) };
    } finally {
      this.#figures = null;
    }
  }

  close(): void {
    this.#process[Symbol.dispose]();
  }

  #collectOwn(): void {
    const { leadership, keeper, links, feed, traced } = this.#ports;
    this.#counter("traceExported").collectWith((set) => set([], traced()?.exported));
    this.#counter("traceDropped").collectWith((set) => set([], traced()?.dropped));
    this.#gauge("leading", (set) => set([], Number(leadership.view().role === "leading")));
    this.#gauge("epoch", (set) => set([], leadership.view().epoch ?? undefined));
    this.#gauge("storeSilent", (set) => set([], (leadership.view().storeSilentMs ?? 0) / 1_000));
    this.#gauge("agents", (set) => set([], links.count));
    this.#gauge("agentsWaiting", (set) => set([], links.waiting));
    this.#gauge("gateways", (set) => set([], feed.count));
    this.#gauge("boards", (set) => set([], this.#board?.hub.count));
    this.#gauge("boardSessions", (set) => set([], this.#board?.sessions.size));
    this.#gauge("catalogRevision", (set) => set([], keeper.snapshot.catalog.revision));
  }

  #collectCluster(): void {
    this.#ofCluster("restored", ({ snapshot }, set) => set([], Number(snapshot.restored)));
    this.#ofCluster("nodesCordoned", ({ snapshot }, set) =>
      set([], snapshot.nodes.filter(({ doc }) => doc.cordoned).length),
    );
    this.#ofCluster("weights", ({ snapshot }, set) => setCounts(weightsBytes(snapshot), set));
    this.#ofCluster("nodes", ({ parts }, set) => setCounts(parts.nodes, set));
    this.#ofCluster("replicas", ({ parts }, set) => setCounts(parts.replicas, set));
    this.#ofCluster("restarts", ({ snapshot }, set) =>
      setCounts(
        countBy(
          snapshot.replicas.flatMap(({ restart }) => restart ?? []),
          ({ state }) => state,
        ),
        set,
      ),
    );
    this.#ofCluster("idleSeconds", ({ snapshot }, set) => {
      const known = snapshot.replicas.flatMap(({ id, state }) =>
        state === "ready" ? (snapshot.use.get(id)?.idleMs ?? []) : [],
      );
      if (known.length > 0) set([], Math.max(...known) / 1_000);
    });
    this.#ofCluster("models", ({ snapshot }, set) =>
      setCounts(
        countBy(modelViews(snapshot), ({ state }) => state),
        set,
      ),
    );
    this.#ofCluster("gpus", ({ parts }, set) => {
      for (const { class: gpuClass, used, free, sick, unknown } of parts.gpus)
        for (const [state, count] of Object.entries({ used, free, sick, unknown })) set([gpuClass, state], count);
    });
    this.#collectNamed();
    this.#ofCluster("unplaced", ({ plan }, set) => {
      const reasons = plan.unplaced.flatMap(({ nodes }) => {
        const kinds = Object.keys(nodes);
        return kinds.length === 0 ? ["noNode"] : kinds;
      });
      setCounts(
        countBy(reasons, (reason) => reason),
        set,
      );
    });
  }

  /** What is told of models, nodes, fabrics and classes of cards, each by its name. */
  #collectNamed(): void {
    this.#ofCluster("modelReplicas", ({ snapshot }, set) => {
      for (const [model, replicas] of firstOf(byModel(snapshot.replicas)))
        for (const [state, count] of Object.entries(countBy(replicas, (replica) => replica.state)))
          set([model, state], count);
    });
    this.#ofCluster("modelIdle", ({ snapshot }, set) => {
      for (const [model, { idleMs }] of firstOf(idleModels(snapshot)))
        if (idleMs !== null) set([model], idleMs / 1_000);
    });
    this.#ofCluster("agentLag", ({ snapshot }, set) => {
      for (const [name, { silentMs }] of firstOf(byName(snapshot)))
        if (silentMs !== null) set([name], silentMs / 1_000);
    });
    this.#ofCluster("nodeWeights", ({ snapshot }, set) => {
      for (const [name, node] of firstOf(byName(snapshot)))
        if (current(node) !== null) set([name], sumOf(Object.values(weightsBytes({ nodes: [node] }))));
    });
    this.#ofCluster("fabricFree", ({ parts }, set) => {
      for (const [fabric, { free, nodes, unknown }] of firstOf(byFabric(parts)))
        if (unknown < nodes) set([fabric], free);
    });
    this.#ofCluster("gpuMemoryUsed", ({ snapshot }, set) =>
      setSums(readCards(snapshot), ({ usedMib, memoryMib }) => (memoryMib === null ? null : usedMib), set),
    );
    this.#ofCluster("gpuMemory", ({ snapshot }, set) =>
      setSums(readCards(snapshot), ({ usedMib, memoryMib }) => (usedMib === null ? null : memoryMib), set),
    );
    this.#ofCluster("gpuUtilization", ({ snapshot }, set) => {
      for (const [gpuClass, cards] of Map.groupBy(readCards(snapshot), (card) => card.class)) {
        const known = cards.flatMap(({ utilization }) => utilization ?? []);
        if (known.length > 0) set([gpuClass], sumOf(known) / known.length);
      }
    });
    this.#ofCluster("leftOut", ({ snapshot, parts }, set) => {
      const sizes = { model: snapshot.catalog.models.size, node: snapshot.nodes.length, fabric: parts.fabrics.length };
      for (const [kind, size] of Object.entries(sizes)) set([kind], Math.max(0, size - METRIC_NAMES_MAX));
    });
  }

  #ofCluster(key: Key, collect: (figures: Figures, set: Set) => void): void {
    this.#gauge(key, (set) => {
      const figures = this.#look();
      if (figures !== null) collect(figures, set);
    });
  }

  #look(): Figures | null {
    if (this.#figures !== null) return this.#figures;
    const seen = this.#ports.seen();
    if (seen !== null) this.#figures = { ...seen, parts: statusParts(seen.snapshot) };
    return this.#figures;
  }

  #gauge(key: Key, collect?: (set: Set) => void): GaugeFamily {
    const { name, help, labels }: MetricDefinition = CONTROL_METRICS[key];
    return this.#registry.gauge(name, help, labels, collect);
  }

  #histogram(key: "passSeconds" | "boardLookSeconds"): HistogramFamily {
    const { name, help, labels, buckets } = CONTROL_METRICS[key];
    return this.#registry.histogram(name, help, labels, buckets);
  }

  #counter(key: Key): CounterFamily {
    const { name, help, labels }: MetricDefinition = CONTROL_METRICS[key];
    return this.#registry.counter(name, help, labels);
  }
}

function weightsBytes({ nodes }: Pick<ClusterSnapshot, "nodes">): Record<string, number> {
  const bytes = { in_use: 0, idle: 0, partial: 0 };
  for (const { state, report } of nodes) {
    if (state !== "ready" || report === null) continue;
    for (const held of report.weights) bytes[held.inUse ? "in_use" : "idle"] += held.bytes;
    for (const left of report.leftovers) if (left.kind === "partial") bytes.partial += left.bytes ?? 0;
  }
  return bytes;
}

const MIB = 1_048_576;
const sumOf = (numbers: readonly number[]): number => numbers.reduce((sum, one) => sum + one, 0);

/** The first by name, so that the same ones are told each time. */
function firstOf<T>(named: ReadonlyMap<string, T>): readonly (readonly [string, T])[] {
  if (named.size <= METRIC_NAMES_MAX) return [...named];
  return [...named].toSorted(([a], [b]) => (a < b ? -1 : 1)).slice(0, METRIC_NAMES_MAX);
}

const byName = ({ nodes }: ClusterSnapshot): ReadonlyMap<string, SeenNode> =>
  new Map(nodes.map((node) => [node.doc.name, node]));
const byFabric = ({ fabrics }: Figures["parts"]): ReadonlyMap<string, Figures["parts"]["fabrics"][number]> =>
  new Map(fabrics.map((row) => [row.fabric ?? "none", row]));
/** Of nodes that are heard. */
const readCards = ({ nodes }: ClusterSnapshot): readonly GpuReport[] =>
  nodes.flatMap((node) => current(node)?.gpus ?? []);

/** By class, of the cards of which there is a figure. */
function setSums(cards: readonly GpuReport[], figureOf: (card: GpuReport) => number | null, set: Set): void {
  for (const [gpuClass, ofClass] of Map.groupBy(cards, (card) => card.class)) {
    const known = ofClass.flatMap((card) => figureOf(card) ?? []);
    if (known.length > 0) set([gpuClass], sumOf(known) * MIB);
  }
}

function setCounts(counts: Readonly<Record<string, number>>, set: Set): void {
  for (const [name, count] of Object.entries(counts)) set([name], count);
}
