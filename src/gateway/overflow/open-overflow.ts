import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import { KIND_TRAITS } from "../../contract/kind-traits.ts";
import { tierUpstream } from "../../contract/resolve-tier-upstream.ts";
import type { OverflowStateView } from "../../contract/overflow-view.ts";
import { laneOf, type JobRecord } from "../../contract/job.ts";
import { Ledger } from "../../coord/overflow/ledger.ts";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import type { RedisLink } from "../../coord/redis/redis-link.ts";
import type { UsageMeter } from "../../coord/usage/usage-meter.ts";
import { parseDay } from "../../contract/usage-view.ts";
import type { Reservation } from "../../decide/overflow/ledger-book.ts";
import { mayBeAtWork } from "../../decide/overflow/may-be-at-work.ts";
import { servedName } from "../../decide/usage/count-call.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import type { Random } from "../../kernel/random.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Signer } from "../../kernel/signer.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import { ledgerMemory } from "./ledger-memory.ts";
import { OverflowCalls } from "./overflow-calls.ts";
import { OverflowDesk } from "./overflow-desk.ts";
import { overflowState } from "./overflow-state.ts";
import { OverflowRoutes, type OverflowRoutesDeps } from "./overflow-routes.ts";
import type { OverflowMetrics } from "./overflow-metrics.ts";
import { makeProvider } from "./providers/make-provider.ts";
import { MoneyReconciler } from "./reconcile-money.ts";
import { Errands } from "./run-errand.ts";

export interface OverflowPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly audit: AuditSink;
  readonly signer: () => Promise<Signer>;
  readonly client: UpstreamClient;
  readonly registry: UpstreamRegistry;
  /** One that shares nothing with other gateways. */
  readonly makeRegistry: () => UpstreamRegistry;
  readonly config: () => GatewayConfig;
  readonly link: RedisLink | null;
  readonly metrics: OverflowMetrics;
  readonly usage: UsageMeter;
  readonly utilization: (gpu: string) => number | null;
  readonly allowsExternal: (keyId: string) => boolean;
  readonly controlAway: () => boolean;
}

const SWEEP_MS = 5_000;
const EPOCH_BYTES = 8;

/** Overflow of one gateway. Without a tier in the configuration neither its file nor its thread exists. */
export class Overflow {
  readonly desk: OverflowDesk;
  readonly errands: Errands;
  readonly calls: OverflowCalls;
  readonly routes: OverflowRoutes;
  readonly #ports: OverflowPorts;
  readonly #tiers: UpstreamRegistry;
  readonly #reconciler: MoneyReconciler;
  #ledger: Ledger | null = null;
  #opening: Promise<void> | null = null;
  #jobs: JobStore | null = null;
  #timer: Timer | undefined;
  #sweeping: Promise<void> | null = null;
  #closed = false;

  constructor(ports: OverflowPorts) {
    this.#ports = ports;
    this.desk = new OverflowDesk({
      ...ports,
      ledger: () => this.#ledger,
      makeProvider: (settings) => makeProvider(settings, ports.clock),
      jobsWaiting: (upstream) => this.#waiting(upstream),
    });
    this.errands = new Errands({
      ...ports,
      desk: this.desk,
      upstreamIdOf: (job) => this.#upstreamIdOf(job),
      mayBeAtWork: (job) => this.#goesOnAlone(job) && mayBeAtWork(job),
      resultBytesMax: () => ports.config().jobs.resultBytesMax,
    });
    this.#reconciler = new MoneyReconciler({
      ...ports,
      desk: this.desk,
      jobOf: async (id) => (await this.#jobs?.get(id))?.job,
      upstreamIdOf: (job) => this.#upstreamIdOf(job),
    });
    this.#tiers = ports.makeRegistry();
    this.calls = new OverflowCalls({ ...ports, desk: this.desk, upstreamOf: (id) => this.#tiers.byId(id) });
    this.routes = new OverflowRoutes({ ...ports, overflow: this });
    ports.metrics.collect(() => ({
      cards: this.desk.policies.map(({ upstream }) => [upstream, this.desk.lastLook(upstream)?.readings ?? []]),
      tiers: this.desk.tiers.map(({ id }) => [id, this.desk.tierState(id)?.inFlight ?? 0]),
    }));
  }

  /** At the start and at each reload. Resolves when the ledger can be asked; it may be away. */
  async apply(): Promise<void> {
    this.desk.apply(this.#ports.config().overflow);
    this.#tiers.apply(this.desk.tiers.filter(({ provider }) => provider.kind === "openai").map(tierUpstream));
    if (this.desk.policies.length === 0 || this.#closed) return;
    this.#opening ??= this.#open();
    await this.#opening;
  }

  get ledger(): Ledger | null {
    return this.#ledger;
  }

  /** As of now: the pages are read where what was read before is old. Never rejects. */
  async states(): Promise<readonly OverflowStateView[]> {
    return Promise.all(
      this.desk.policies.map(async (policy) =>
        overflowState(this.desk, policy, await this.desk.look(policy, false), this.#ledger),
      ),
    );
  }

  useJobs(store: JobStore): void {
    this.#jobs = store;
  }

  /** The job and what it asks for, by whoever it is; undefined: there is none. */
  readonly content: OverflowRoutesDeps["overflow"]["content"] = async (id) => {
    const read = await this.#jobs?.get(id);
    return read === undefined ? undefined : { job: read.job, body: await this.#jobs?.readBlob(id, "body") };
  };

  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    this.#tiers.dispose();
    await this.#sweeping;
    await this.#ledger?.close();
  }

  async #open(): Promise<void> {
    const { clock, config, link } = this.#ports;
    const { dataDir } = config();
    const store =
      link === null
        ? new (await import("../../coord/local/local-docs.ts")).LocalDocs(join(dataDir, "ledger.db"), clock)
        : new (await import("../../coord/redis/redis-docs.ts")).RedisDocs(link);
    this.#ledger = new Ledger({
      store,
      memory: ledgerMemory(dataDir, store.kind),
      newEpoch: () => randomBytes(EPOCH_BYTES).toString("hex"),
      clock,
      random: this.#ports.random,
      onSettled: (reservation) => this.#countPaid(reservation),
      signer: this.#ports.signer,
      onStanding: (why) => {
        if (why === null) this.#ports.log.info("overflow.ledger", { state: "back" });
        else this.#ports.log.warn("overflow.ledger", { state: "away", why });
      },
    });
    this.#planSweep();
  }

  /** In the day that the ledger books it in, so that both show the same sums. */
  #countPaid({ payer, day, chargedMicros, currency }: Reservation): void {
    const on = parseDay(day);
    if (payer === undefined || on === undefined || chargedMicros === null) return;
    const { keyId, model, upstream } = payer;
    this.#ports.usage.paid(on, keyId, servedName(model, upstream), { micros: chargedMicros, currency });
  }

  #upstreamOf(job: JobRecord): Upstream | undefined {
    const { registry } = this.#ports;
    return job.model === null ? registry.byId(job.upstream ?? "") : registry.byModel(job.model);
  }

  #goesOnAlone(job: JobRecord): boolean {
    const kind = this.#upstreamOf(job)?.settings.kind;
    return kind !== undefined && KIND_TRAITS[kind].outlivesItsCall;
  }

  #upstreamIdOf(job: JobRecord): string | null {
    return this.#upstreamOf(job)?.settings.id ?? null;
  }

  #waiting({ settings }: Upstream): Promise<number | null> {
    if (this.#jobs === null) return Promise.resolve(0);
    const lanes = [
      laneOf({ model: null, upstream: settings.id }),
      ...settings.models.map((model) => laneOf({ model, upstream: null })),
    ];
    return this.#jobs.waiting(lanes);
  }

  #planSweep(): void {
    if (this.#closed) return;
    this.#timer = this.#ports.clock.after(SWEEP_MS, () => {
      this.#sweeping = this.#sweep().finally(() => {
        this.#sweeping = null;
        this.#planSweep();
      });
    });
  }

  /** Never rejects: what can't be done now is done in the next one. */
  async #sweep(): Promise<void> {
    const ledger = this.#ledger;
    if (ledger === null) return;
    try {
      await ledger.sweep();
      if (this.#jobs !== null) await this.#reconciler.round(ledger);
    } catch (error) {
      this.#ports.log.debug("overflow.sweep", { message: messageOf(error) });
    }
  }
}
