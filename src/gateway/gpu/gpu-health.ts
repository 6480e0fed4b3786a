import type { GpuReport } from "../../contract/fleet.ts";
import type { GpuHealthSettings } from "../../contract/gateway-config.ts";
import type { GpuHealthView } from "../../contract/gpu-health-view.ts";
import { GpuBook } from "../../decide/gpu/gpu-book.ts";
import type { GpuCard } from "../../decide/gpu/gpu-card.ts";
import { parseGpuName } from "../../decide/gpu/gpu-name.ts";
import type { GpuPolicy } from "../../decide/gpu/gpu-policy.ts";
import { sampleOfReport } from "../../decide/gpu/gpu-sample.ts";
import { asMono, type Clock, type MonoMs, type Timer } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { GpuMetrics } from "../metrics/gpu-metrics.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import { EndpointGpus } from "./endpoint-gpus.ts";
import { GpuGuard } from "./gpu-guard.ts";
import { GpuMonitor } from "./gpu-monitor.ts";
import { GpuShedder } from "./gpu-shedder.ts";
import { viewGpus, type GpuState } from "./gpu-view.ts";

export interface GpuHealthDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly audit: Pick<AuditSink, "record">;
  readonly client: UpstreamClient;
  readonly registry: UpstreamRegistry;
  readonly metrics: GpuMetrics;
}

const AGENT_SOURCES_MAX = 4_096;
/** Whether an endpoint may be kept out rests on the others too: one that dies must not wait for the next page about cards. */
const GUARD_MS = 1_000;

/**
 * Everything about the cards under the endpoints: who tells of them, what it means, and what is done about it. Made when the
 * configuration has a `gpu_health`, or a control plane places endpoints; else nothing of this exists.
 */
export class GpuHealth {
  readonly state: GpuState;
  readonly shedder: GpuShedder;
  readonly #deps: GpuHealthDeps;
  readonly #book = new GpuBook();
  readonly #monitor: GpuMonitor;
  readonly #guard: GpuGuard;
  readonly #gpus: EndpointGpus;
  #settings: GpuHealthSettings;
  #timer: Timer | undefined;
  #soon: Timer | undefined;
  #notKnown = new Set<string>();
  #lookedFor = false;
  /** By time alone, in full. */
  #refreshedAt: MonoMs;
  readonly #blind = new WeakMap<GpuCard, string>();

  constructor(settings: GpuHealthSettings, deps: GpuHealthDeps) {
    this.#deps = deps;
    this.#settings = settings;
    this.#refreshedAt = deps.clock.mono();
    const ports = {
      ...deps,
      book: this.#book,
      settings: () => this.#settings,
      policy: (): GpuPolicy => this.#settings,
    };
    this.#gpus = new EndpointGpus(this.#book, ports.settings);
    this.shedder = new GpuShedder({ ...ports, gpus: this.#gpus });
    this.#guard = new GpuGuard({ ...ports, gpus: this.#gpus });
    this.#monitor = new GpuMonitor({ ...ports, onLook: () => this.refresh() });
    this.state = { ...ports, gpus: this.#gpus, shedder: this.shedder };
    this.#monitor.apply(settings.sources);
    this.#sayOldForms();
    this.#arm();
  }

  /** A reload. What is known of the cards stays. */
  apply(settings: GpuHealthSettings): void {
    this.#settings = settings;
    this.#monitor.apply(settings.sources);
    this.#sayOldForms();
    this.refresh();
  }

  /** Endpoints have changed, or something was told of cards. */
  refresh(): void {
    this.#guard.refresh();
    this.#warnOfUnknown();
    this.#warnOfBlind();
  }

  /** What an agent read on its own host so many ms ago: the whole list of its cards, each time. */
  applyReadings(host: string, readings: readonly GpuReport[], ageMs: number): void {
    const { clock } = this.#deps;
    const name = `agent ${host}`;
    const readAt = asMono(clock.mono() - ageMs);
    const source = this.#book.source(name);
    if (source === undefined && this.#book.sources().length >= AGENT_SOURCES_MAX) return;
    // After a change of leaders the new one may tell of a report that came before the one that the old one told of.
    if (source?.toldAt !== undefined && readAt < source.toldAt) return;
    const samples = readings.map((report) => sampleOfReport(host, report));
    this.#book.look(name, { kind: "page", samples, whole: true, reading: String(readAt) }, readAt, this.#settings);
    // Many agents tell at about the same time.
    this.#soon ??= clock.after(0, () => {
      this.#soon = undefined;
      this.refresh();
    });
  }

  /** The busiest of the cards that a name means, 0 to 100; null: nobody measured it of late. */
  utilization(text: string): number | null {
    const name = parseGpuName(text);
    const now = this.#deps.clock.mono();
    const measured = (name === undefined ? [] : this.#book.find(name))
      .filter((card) => !card.isStale(now, this.#settings))
      .flatMap(({ sample }) => sample.utilization ?? []);
    return measured.length === 0 ? null : Math.max(...measured);
  }

  /** How many cards a name means now; undefined where the text is no name. */
  count(text: string): number | undefined {
    const name = parseGpuName(text);
    return name === undefined ? undefined : this.#book.find(name).length;
  }

  /** The operator's word that a card is good. Returns how many cards were meant. */
  clear(text: string): number {
    const name = parseGpuName(text);
    const cleared = name === undefined ? 0 : this.#book.clear(name, this.#deps.clock.mono(), this.#settings);
    this.refresh();
    return cleared;
  }

  view(): GpuHealthView {
    return viewGpus(this.state);
  }

  stop(): void {
    this.#monitor.stop();
    this.#timer?.cancel();
    this.#soon?.cancel();
    this.#guard.release();
  }

  /** Time alone makes cards stale, also where no source is left to tell of them. */
  #arm(): void {
    const { clock } = this.#deps;
    this.#timer = clock.after(Math.min(GUARD_MS, this.#settings.pollMs), () => {
      if (clock.mono() - this.#refreshedAt < this.#settings.pollMs) this.#guard.refresh();
      else {
        this.#refreshedAt = clock.mono();
        this.#lookedFor = true;
        this.refresh();
      }
      this.#arm();
    });
  }

  /** A name that no source tells of may be a typing mistake: said once, when every source could have told. */
  #warnOfUnknown(): void {
    if (!this.#lookedFor) return;
    const missing = new Set<string>();
    for (const upstream of this.#deps.registry.all())
      for (const endpoint of upstream.endpoints)
        for (const { text, cards } of this.#gpus.of(upstream, endpoint)) {
          if (cards.length > 0) continue;
          missing.add(text);
          if (!this.#notKnown.has(text))
            this.#deps.log.warn("gpu.not_known", { gpu: text, upstream: upstream.settings.id, endpoint: endpoint.id });
        }
    this.#notKnown = missing;
  }

  /** A field that is told no more takes away what rests on it, and nothing else would show that. */
  #warnOfBlind(): void {
    for (const [gpu, card] of this.#book.cards()) {
      const fields = [...card.lost].join(" ");
      if (fields === (this.#blind.get(card) ?? "")) continue;
      this.#blind.set(card, fields);
      if (fields !== "") this.#deps.log.warn("gpu.field_lost", { gpu, source: card.source, fields });
    }
  }

  #sayOldForms(): void {
    if (this.#settings.placedOnly) return;
    for (const upstream of this.#deps.registry.all()) {
      const { id, gpuIds } = upstream.settings;
      if (gpuIds.length === 0) continue;
      const { host, ties, leaves } = this.#gpus.oldForm(upstream);
      const [source] = this.#settings.sources;
      const place = host ?? source?.hostname ?? "no host";
      this.#deps.log[ties.length === 0 ? "warn" : "info"]("gpu.gpu_ids", {
        upstream: id,
        gpus: gpuIds.map((index) => `${place}/${index}`).join(" "),
        ties: ties.map((endpoint) => endpoint.id).join(" "),
        not_tied: leaves.map((endpoint) => endpoint.id).join(" "),
      });
    }
  }
}
