import type { KeyRing } from "../access/key-ring.ts";
import { LINK_PATH } from "../contract/agent-link.ts";
import type { NewEvent } from "../contract/control-event.ts";
import { FEED_PATH } from "../contract/feed.ts";
import type { AuthSettings } from "../contract/gateway-config.ts";
import type { ControlSettings } from "../contract/resolve-control.ts";
import { makeFeed } from "../decide/feed/make-feed.ts";
import { heartbeatMs } from "../decide/fleet/heartbeat.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Logger } from "../kernel/log.ts";
import type { UpgradeHandlers } from "./api/upgrades.ts";
import { GatewayDesk } from "./board/gateway-desk.ts";
import type { CatalogKeeper } from "./catalog/catalog-keeper.ts";
import { FeedServer } from "./feed/feed-server.ts";
import { gatewayCheck } from "./feed/gateway-check.ts";
import type { Leadership } from "./leader/leadership.ts";
import { AgentLinkServer } from "./link/agent-link-server.ts";
import { passMint, passSettings, ReconcileLoop, watchSettings } from "./loop/reconcile-loop.ts";
import type { FinishedPass } from "./loop/term-loop.ts";
import { tracePass } from "./loop/trace-pass.ts";
import type { Tracer } from "../trace/tracer.ts";
import type { ControlStore } from "./store/control-store.ts";
import { ControlMetrics } from "./metrics/control-metrics.ts";
import type { ClusterSnapshot } from "./view/cluster-view.ts";
import { clusterSnapshot, LiveView } from "./view/live-view.ts";

export interface LiveClusterPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly settings: ControlSettings;
  readonly store: ControlStore;
  readonly keeper: CatalogKeeper;
  readonly leadership: Leadership;
  readonly keys: KeyRing;
  readonly auth: () => AuthSettings;
  readonly controlId: string;
  readonly onEvent: (event: NewEvent) => void;
  /** Null: nothing is traced. */
  readonly tracer: Tracer | null;
}

/** Gateways dial again anywhere within half a minute, and so get longer than agents, which try once at once. */
const GATHER_SETTLES = 2.5;

/** What a control plane has in memory of the cluster: agents and gateways that are connected, and the loop between them. */
export class LiveCluster {
  readonly loop: ReconcileLoop;
  readonly links: AgentLinkServer;
  readonly feed: FeedServer;
  readonly desk: GatewayDesk;
  readonly view: LiveView;
  readonly metrics: ControlMetrics;
  /** Something has changed that gateways have not been told. */
  #isUnsaid = true;
  #unplaced = "";

  constructor(ports: LiveClusterPorts) {
    const { clock, log, settings, store, keeper, leadership, controlId, onEvent } = ports;
    const [pass, watch] = [passSettings(settings), watchSettings(settings)];
    this.links = new AgentLinkServer({
      clock,
      log,
      store,
      controlId,
      controls: settings.advertise,
      heartbeatMs: () => heartbeatMs(this.links.count, watch.unreachableAfterMs),
      commandLifeMs: pass.commandLifeMs,
      onReport: (report, at) => {
        this.feed.heardCards(report.name, report.gpus, at);
        this.loop.heard(report, at);
      },
      onWelcome: () => this.loop.wake(),
      onEvent,
    });
    this.desk = new GatewayDesk(clock);
    this.feed = this.#makeFeed(ports);
    this.loop = new ReconcileLoop({
      clock,
      log,
      store,
      leadership,
      keeper,
      links: this.links,
      demanded: (now) => this.feed.demanded(now),
      idle: (now) => this.feed.idle(now),
      use: (now) => this.feed.use(now),
      mint: passMint(store.clusterSecret),
      settings: pass,
      watch,
      onLead: (term) => {
        this.#isUnsaid = true;
        this.feed.lead(term);
      },
      onPass: (finished) => this.#passed(finished, ports.tracer),
    });
    this.metrics = new ControlMetrics({
      traced: () => ports.tracer?.stats(),
      clock,
      log,
      leadership,
      keeper,
      links: this.links,
      feed: this.feed,
      seen: () => this.#seen(),
    });
    keeper.onChange(() => this.loop.wake());
    this.view = new LiveView({
      clock,
      store,
      keeper,
      loop: this.loop,
      links: this.links,
      feed: this.feed,
      settings: pass,
    });
  }

  #passed(finished: FinishedPass, tracer: Tracer | null): void {
    this.metrics.passed(finished);
    if (tracer !== null) tracePass(tracer, finished);
    this.#publish(finished);
  }

  #makeFeed({ clock, log, store, controlId, settings, keys, auth }: LiveClusterPorts): FeedServer {
    return new FeedServer({
      clock,
      log,
      clusterId: store.clusterId,
      controlId,
      gatherMs: settings.settleMs * GATHER_SETTLES,
      check: gatewayCheck({ store, keys, auth, log }),
      enrolled: async () => (await store.listGateways()).map(({ name }) => name),
      onNews: () => this.loop.wake(),
      board: this.desk,
    });
  }

  #seen(): { readonly snapshot: ClusterSnapshot; readonly plan: FinishedPass["plan"] } | null {
    const { seen } = this.loop;
    return seen === null ? null : { snapshot: clusterSnapshot(seen.snapshot, seen.plan.unplaced), plan: seen.plan };
  }

  get upgrades(): UpgradeHandlers {
    return {
      [LINK_PATH]: (upgrade) => this.links.upgrade(upgrade),
      [FEED_PATH]: (upgrade) => this.feed.upgrade(upgrade),
    };
  }

  /** Breaks all connections off; the loop has ended with its term. */
  async close(): Promise<void> {
    this.links.close();
    this.feed.close();
    this.desk.close();
    this.metrics.close();
    await this.loop.settled();
  }

  /** A leader that does not know yet what runs says nothing: gateways go on with what they have. What it left unsaid it says later. */
  #publish({ snapshot, plan, changed }: FinishedPass): void {
    // Not by its words: their figures move with every report, and gateways need no version for each.
    const unplaced = JSON.stringify(plan.unplaced.map(({ model, nodes }) => [model, nodes]));
    this.#isUnsaid ||= changed || unplaced !== this.#unplaced;
    this.#unplaced = unplaced;
    if (!this.#isUnsaid || snapshot.fleet.settling) return;
    this.#isUnsaid = false;
    this.feed.publish(makeFeed(snapshot.catalog, snapshot.docs, plan.unplaced));
  }
}
