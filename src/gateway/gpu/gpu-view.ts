import type { GpuHealthSettings } from "../../contract/gateway-config.ts";
import type { GpuHealthView } from "../../contract/gpu-health-view.ts";
import { SOURCE_STATES, type GpuBook } from "../../decide/gpu/gpu-book.ts";
import type { GpuCard, GpuVerdict } from "../../decide/gpu/gpu-card.ts";
import type { GpuPolicy } from "../../decide/gpu/gpu-policy.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { GpuFamilies } from "../metrics/gpu-metrics.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import type { EndpointGpus } from "./endpoint-gpus.ts";
import type { GpuShedder } from "./gpu-shedder.ts";

/** What pages are made of. */
export interface GpuState {
  readonly clock: Clock;
  readonly registry: UpstreamRegistry;
  readonly book: GpuBook;
  readonly gpus: EndpointGpus;
  readonly shedder: GpuShedder;
  readonly settings: () => GpuHealthSettings;
  readonly policy: () => GpuPolicy;
}

const BYTES_PER_MIB = 1_048_576;

/** Computed when asked. */
export function viewGpus(state: GpuState): GpuHealthView {
  const { clock, registry, book, settings } = state;
  const now = clock.mono();
  const { dryRun, coupleFaults, coupleXid, shedBatch } = settings();
  const endpointsOn = endpointsByCard(state);
  return {
    dry_run: dryRun,
    couple_faults: coupleFaults,
    couple_xid: coupleXid,
    shed_batch: shedBatch,
    sources: book.sources().map(({ name, state: is, why, hosts, toldAt }) => ({
      name,
      state: is,
      why: why === "" ? null : why,
      hosts: [...hosts],
      told_ms_ago: toldAt === undefined ? null : Math.round(now - toldAt),
    })),
    gpus: book.cards().map(([gpu, card]) => viewCard(state, gpu, card, endpointsOn.get(card) ?? [], now)),
    upstreams: registry.all().map((upstream) => viewUpstream(state, upstream)),
  };
}

function viewCard(
  { book, policy }: GpuState,
  gpu: string,
  card: GpuCard,
  endpoints: readonly string[],
  now: MonoMs,
): GpuHealthView["gpus"][number] {
  const { sample } = card;
  const verdict = book.verdict(card, now, policy());
  const old = card.isStale(now, policy());
  const fresh = <T>(value: T): T | null => (old ? null : value);
  return {
    gpu,
    host: sample.host,
    index: sample.index,
    source: card.source,
    state: verdict.kind,
    why: whyOf(verdict),
    saturated: card.saturated(now, policy()),
    utilization: fresh(sample.utilization === null ? null : sample.utilization / 100),
    memory_used_mib: fresh(sample.memoryUsedMib),
    memory_free_mib: fresh(sample.memoryFreeMib),
    temperature_c: fresh(sample.temperatureC),
    power_w: fresh(sample.powerW),
    throttle_reasons: fresh(sample.throttleReasons),
    xids: fresh(sample.xids === null ? null : [...sample.xids]),
    xid_counts: fresh(sample.xidsOfWindow ?? sample.xidsInTotal),
    fields_lost: [...card.lost],
    age_ms: card.freshAt === undefined ? null : Math.round(now - card.freshAt),
    endpoints: [...endpoints],
  };
}

function whyOf(verdict: GpuVerdict): string | null {
  if (verdict.kind === "good") return null;
  if (verdict.kind === "unknown") return verdict.why;
  return verdict.faults.map(({ kind, detail }) => `${kind}: ${detail}`).join("; ");
}

function endpointsByCard({ registry, gpus }: GpuState): ReadonlyMap<GpuCard, string[]> {
  const found = new Map<GpuCard, string[]>();
  for (const upstream of registry.all())
    for (const endpoint of upstream.endpoints)
      for (const card of gpus.of(upstream, endpoint).flatMap(({ cards }) => cards))
        found.set(card, [...(found.get(card) ?? []), `${upstream.settings.id} ${endpoint.id}`]);
  return found;
}

function viewUpstream({ gpus, shedder }: GpuState, upstream: Upstream): GpuHealthView["upstreams"][number] {
  const named = upstream.endpoints.flatMap((endpoint) => gpus.of(upstream, endpoint));
  const { gpuIds } = upstream.settings;
  const old = gpuIds.length === 0 ? null : gpus.oldForm(upstream);
  return {
    id: upstream.settings.id,
    saturated: shedder.saturated(upstream),
    guarded: upstream.endpoints.filter(({ guard }) => guard === "fail").map(({ id }) => id),
    not_known: [...new Set(named.filter(({ cards }) => cards.length === 0).map(({ text }) => text))],
    gpu_ids:
      old === null
        ? null
        : { host: old.host, ties: old.ties.map(({ id }) => id), leaves: old.leaves.map(({ id }) => id) },
  };
}

/** `state`: undefined while no card is looked at; nothing is then emitted. */
export function collectGpus(families: GpuFamilies, state: () => GpuState | undefined): void {
  const perCard =
    (read: (card: GpuCard, now: MonoMs, of: GpuState) => number | null | undefined) =>
    (set: (values: readonly string[], value: number | undefined) => void): void => {
      const of = state();
      if (of === undefined) return;
      const now = of.clock.mono();
      for (const [gpu, card] of of.book.cards()) set([card.sample.host, gpu], read(card, now, of) ?? undefined);
    };
  const whileFresh = (read: (card: GpuCard) => number | null) =>
    perCard((card, now, { policy }) => (card.isStale(now, policy()) ? undefined : read(card)));
  const scaled = (value: number | null, by: number): number | null => (value === null ? null : value * by);
  families.utilization.collectWith(whileFresh(({ sample }) => scaled(sample.utilization, 0.01)));
  families.memoryUsed.collectWith(whileFresh(({ sample }) => scaled(sample.memoryUsedMib, BYTES_PER_MIB)));
  families.memoryFree.collectWith(whileFresh(({ sample }) => scaled(sample.memoryFreeMib, BYTES_PER_MIB)));
  families.temperature.collectWith(whileFresh(({ sample }) => sample.temperatureC));
  families.power.collectWith(whileFresh(({ sample }) => sample.powerW));
  families.faulted.collectWith(
    perCard((card, now, { book, policy }) => (book.verdict(card, now, policy()).kind === "faulted" ? 1 : 0)),
  );
  families.stale.collectWith(perCard((card, now, { policy }) => (card.isStale(now, policy()) ? 1 : 0)));
  families.sampleAge.collectWith(
    perCard((card, now) => (card.freshAt === undefined ? undefined : (now - card.freshAt) / 1000)),
  );
  families.fieldLost.collectWith((set) => {
    for (const [gpu, card] of state()?.book.cards() ?? [])
      for (const field of card.lost) set([card.sample.host, gpu, field], 1);
  });
  collectOfUpstreams(families, state);
}

function collectOfUpstreams(families: GpuFamilies, state: () => GpuState | undefined): void {
  families.known.collectWith((set) => {
    const of = state();
    for (const upstream of of?.registry.all() ?? [])
      for (const endpoint of upstream.endpoints)
        for (const { text, cards } of of?.gpus.of(upstream, endpoint) ?? []) set([text], cards.length === 0 ? 0 : 1);
  });
  families.sourceState.collectWith((set) => {
    for (const source of state()?.book.sources() ?? [])
      for (const name of SOURCE_STATES) set([source.name, name], source.state === name ? 1 : 0);
  });
  families.saturated.collectWith((set) => {
    const of = state();
    for (const upstream of of?.registry.all() ?? [])
      set([upstream.settings.id], of?.shedder.saturated(upstream) === true ? 1 : 0);
  });
  families.guardedEndpoints.collectWith((set) => {
    for (const upstream of state()?.registry.all() ?? [])
      set([upstream.settings.id], upstream.endpoints.filter(({ guard }) => guard === "fail").length);
  });
}
