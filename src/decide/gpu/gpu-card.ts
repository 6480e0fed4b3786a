import type { MonoMs } from "../../kernel/clock.ts";
import type { GpuPolicy } from "./gpu-policy.ts";
import type { GpuSample } from "./gpu-sample.ts";
import { SILENT, WELL, type Sign } from "./sign.ts";
import { XidWatch } from "./xid-watch.ts";

export const FAULT_KINDS = ["temperature", "xid", "ecc", "rowRemap", "gone", "reported"] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

export interface GpuFault {
  readonly kind: FaultKind;
  /** In words, for people. */
  readonly detail: string;
  readonly since: MonoMs;
}

export type GpuVerdict =
  | { readonly kind: "good" }
  /** The first of them decides what becomes of an upstream's last endpoint: heat comes last. */
  | { readonly kind: "faulted"; readonly faults: readonly [GpuFault, ...GpuFault[]] }
  /** Neither good nor bad: nothing is done because of it. */
  | { readonly kind: "unknown"; readonly why: "neverSeen" | "stale" | "frozen" };

/** Heat passes by itself; everything else wants somebody's hand or a reset. */
export const isSevere = (fault: GpuFault): boolean => fault.kind !== "temperature";

/** Readings in a row in which a card is missing beside others: one may be the exporter's slip. */
export const GONE_AFTER_READINGS = 2;
/**
 * An exporter reads its cards every 30 s and is asked every 15 s, so that one reading is on two pages. A third page is another reading, even
 * where nothing on it has changed.
 */
export const GONE_AFTER_PAGES = 3;
/** A card that has power moves its energy counter with each of the exporter's readings (every 30 s). */
const FROZEN_MS = 120_000;
/** Of the ring of utilisations; what can be configured is not above it. */
export const SUSTAINED_MAX = 100;

interface Latch extends GpuFault {
  /** Since when the samples show the contrary. */
  healthySince: MonoMs | null;
  /** When samples last said something about it, for or against. */
  toldAt: MonoMs;
}

export const WATCHED_FIELDS = ["utilization", "temperature", "xid"] as const;
export type WatchedField = (typeof WATCHED_FIELDS)[number];

/**
 * What is known of one card.
 *
 * Invariants:
 *   C1. Nothing is concluded from a code or a count that was there at the first look: a gauge may have held it for months.
 *   C2. A fault ends by `clearAfterMs` of fresh samples that show the contrary, or by the operator's word; never by silence.
 *   C3. While the newest sample is older than `stalenessMs` the verdict is "unknown", whatever was found before. A card that is gone
 *       has no samples; there the age of what its source tells of others counts.
 *   C4. A page that repeats itself (same times, or the same readings while an energy counter is among them) makes no sample fresh.
 */
export class GpuCard {
  /** Who told of it last. */
  source: string;
  sample: GpuSample;
  /** Time of the newest sample that counts; undefined before the first. */
  freshAt: MonoMs | undefined;
  /** When it was last on a page at all. */
  seenAt: MonoMs;
  /** Fields that were told once and no longer are: what rests on them is blind. */
  readonly lost = new Set<WatchedField>();
  readonly #told = new Set<WatchedField>();
  readonly #faults = new Map<FaultKind, Latch>();
  readonly #ring: number[] = [];
  /** When a utilisation was told last: the other fields keep a sample fresh without one. */
  #busyAt: MonoMs | undefined;
  readonly #xids = new XidWatch();
  #eccBase: number | null;
  /** The operator knows of the failure that the gauge shows. */
  #remapKnown = false;
  /** Of each source that tells of it, heard or not. */
  readonly #pages = new Map<string, PageWatch>();
  #frozen = false;
  /** Pages in a row without it, and different ones among them. */
  #missedPages = 0;
  #missedReadings = 0;
  #missedPage: string | null = null;

  constructor(source: string, sample: GpuSample, now: MonoMs, policy: GpuPolicy) {
    this.source = source;
    this.sample = sample;
    this.seenAt = now;
    this.#eccBase = sample.eccDoubleBit;
    this.look(source, sample, now, policy);
  }

  /**
   * A source tells of it. One is heard, and the other when that falls silent or no longer tells of the card. An exporter is heard before
   * an agent, who reads no code and counts no memory error; what an agent found wrong counts all the same.
   */
  look(source: string, sample: GpuSample, now: MonoMs, policy: GpuPolicy): void {
    const page = this.#pages.get(source) ?? new PageWatch();
    this.#pages.set(source, page);
    const repeats = page.repeats(sample, now);
    const tellsMore = sample.teller === "exporter" && this.sample.teller === "agent" && !repeats && tells(sample);
    if (this.source === source || this.isMissed || this.isStale(now, policy) || tellsMore)
      this.#hear(source, sample, repeats, now, policy);
    else this.#judge("reported", signOfReport(sample), now, policy.clearAfterMs);
  }

  /** With which cards the source tells of it. */
  cohortAt(source: string): number | null {
    return this.#pages.get(source)?.cohort ?? null;
  }

  join(source: string, cohort: number): void {
    const page = this.#pages.get(source);
    if (page !== undefined) page.cohort = cohort;
  }

  /** A source tells of nothing any more. */
  forgetSource(source: string): void {
    this.#pages.delete(source);
  }

  #hear(source: string, sample: GpuSample, repeats: boolean, now: MonoMs, policy: GpuPolicy): void {
    this.source = source;
    this.seenAt = now;
    this.#missedPages = 0;
    this.#missedReadings = 0;
    this.#missedPage = null;
    this.sample = sample;
    this.#noteFields(sample);
    this.#frozen = repeats;
    if (this.#frozen || !tells(sample)) return;
    if (this.isStale(now, policy)) this.#onGap();
    this.#take(sample, now, policy);
  }

  /** Its source told of other cards, and not of this one. `page`: what it told of them; an exporter gives one reading out several times. */
  miss(now: MonoMs, page: string): void {
    this.#missedPages += 1;
    if (this.#missedPage !== page) this.#missedReadings += 1;
    this.#missedPage = page;
    if (this.isGone) this.#judge("gone", GONE, now, 0);
  }

  /** It was missing when its source told last. */
  get isMissed(): boolean {
    return this.#missedPages > 0;
  }

  get isGone(): boolean {
    return this.#missedReadings >= GONE_AFTER_READINGS || this.#missedPages >= GONE_AFTER_PAGES;
  }

  /** The operator's word that the card is good: what stands in its gauges now is old. */
  clear(): void {
    this.#faults.clear();
    this.#xids.clear();
    this.#eccBase = this.sample.eccDoubleBit;
    this.#remapKnown = this.sample.rowRemapFailed === true;
  }

  /** `sourceAt`: when its source last told of any card. */
  verdict(now: MonoMs, sourceAt: MonoMs | undefined, policy: GpuPolicy): GpuVerdict {
    const gone = this.isGone && sourceAt !== undefined && now - sourceAt <= policy.stalenessMs;
    if (!gone && this.isStale(now, policy))
      return { kind: "unknown", why: this.#frozen ? "frozen" : this.freshAt === undefined ? "neverSeen" : "stale" };
    const faults: GpuFault[] = [];
    for (const [kind, latch] of this.#faults) {
      if (kind !== "temperature" && !policy.coupleXid) continue;
      // Heat that nobody measures any more is no heat.
      if (kind === "temperature" && now - latch.toldAt > policy.stalenessMs) continue;
      faults.push(latch);
    }
    const [first, ...rest] = faults.toSorted((a, b) => Number(isSevere(b)) - Number(isSevere(a)));
    if (first !== undefined) return { kind: "faulted", faults: [first, ...rest] };
    return gone ? { kind: "unknown", why: "stale" } : { kind: "good" };
  }

  saturated(now: MonoMs, policy: GpuPolicy): boolean {
    if (this.isGone || this.isStale(now, policy) || this.#ring.length < policy.sustainedSamples) return false;
    if (this.#busyAt === undefined || now - this.#busyAt > policy.stalenessMs) return false;
    return this.#ring.slice(-policy.sustainedSamples).every((value) => value >= policy.shedUtilization);
  }

  isStale(now: MonoMs, { stalenessMs }: GpuPolicy): boolean {
    return this.freshAt === undefined || now - this.freshAt > stalenessMs;
  }

  /** Nobody knows what was between two samples that are far apart. */
  #onGap(): void {
    this.#ring.length = 0;
    for (const latch of this.#faults.values()) latch.healthySince = null;
  }

  #take(sample: GpuSample, now: MonoMs, policy: GpuPolicy): void {
    this.freshAt = now;
    if (sample.utilization !== null) this.#noteBusy(sample.utilization, now, policy);
    const { clearAfterMs } = policy;
    this.#judge("temperature", signOfHeat(sample, policy), now, clearAfterMs);
    // An agent's silence about codes says nothing of the exporter's gauges, which may hold one for months.
    if (sample.teller === "exporter") this.#judge("xid", this.#xids.look(sample, now, policy), now, clearAfterMs);
    this.#judge("ecc", this.#signOfEcc(sample.eccDoubleBit), now, clearAfterMs);
    this.#judge("rowRemap", this.#signOfRemap(sample.rowRemapFailed), now, clearAfterMs);
    this.#judge("reported", signOfReport(sample), now, clearAfterMs);
    this.#judge("gone", WELL, now, clearAfterMs);
  }

  #noteBusy(utilization: number, now: MonoMs, { stalenessMs }: GpuPolicy): void {
    if (this.#busyAt !== undefined && now - this.#busyAt > stalenessMs) this.#ring.length = 0;
    this.#busyAt = now;
    this.#ring.push(utilization);
    if (this.#ring.length > SUSTAINED_MAX) this.#ring.shift();
  }

  #judge(kind: FaultKind, sign: Sign, now: MonoMs, clearAfterMs: number): void {
    if (sign.kind === "silent") return;
    const latch = this.#faults.get(kind);
    if (sign.kind === "bad") {
      const since = latch?.since ?? now;
      this.#faults.set(kind, { kind, detail: sign.detail, since, healthySince: null, toldAt: now });
      return;
    }
    if (latch === undefined) return;
    latch.toldAt = now;
    latch.healthySince ??= now;
    if (now - latch.healthySince < clearAfterMs) return;
    this.#faults.delete(kind);
    if (kind === "xid") this.#xids.clear();
  }

  #signOfEcc(count: number | null): Sign {
    if (count === null) return SILENT;
    // A lower count is that of a driver that was loaded anew.
    if (this.#eccBase === null || count < this.#eccBase) this.#eccBase = count;
    return count > this.#eccBase ? { kind: "bad", detail: `${count} double-bit memory errors` } : WELL;
  }

  #signOfRemap(failed: boolean | null): Sign {
    if (failed === null) return SILENT;
    if (!failed) {
      this.#remapKnown = false;
      return WELL;
    }
    return this.#remapKnown ? SILENT : { kind: "bad", detail: "a memory row could not be remapped" };
  }

  #noteFields(sample: GpuSample): void {
    const told: Record<WatchedField, boolean> = {
      utilization: sample.utilization !== null,
      temperature: sample.temperatureC !== null,
      xid: sample.xids !== null || sample.xidsOfWindow !== null,
    };
    for (const field of WATCHED_FIELDS) {
      if (told[field]) {
        this.#told.add(field);
        this.lost.delete(field);
      } else if (this.#told.has(field)) this.lost.add(field);
    }
  }
}

/** What one source's pages tell of one card, one after the other. */
class PageWatch {
  cohort: number | null = null;
  #stampMs: number | null = null;
  #still: { readonly readings: string; readonly since: MonoMs } | null = null;

  /** Whether it is what the page told before. A page with times of its own has shown only one of them at the first look. */
  repeats(sample: GpuSample, now: MonoMs): boolean {
    const stampBefore = this.#stampMs;
    this.#stampMs = sample.stampMs;
    if (sample.stampMs !== null) return stampBefore === null || sample.stampMs <= stampBefore;
    const readings = readingsOf(sample);
    if (this.#still?.readings !== readings) this.#still = { readings, since: now };
    return sample.energyMj !== null && sample.energyMj > 0 && now - this.#still.since >= FROZEN_MS;
  }
}

/** A row of blanks is no sample: the card is there, and nobody knows how it is. */
const tells = (sample: GpuSample): boolean => {
  const { temperatureC, utilization, xids, xidsOfWindow, xidsInTotal, eccDoubleBit, rowRemapFailed, sick } = sample;
  return [temperatureC, utilization, xids, xidsOfWindow, xidsInTotal, eccDoubleBit, rowRemapFailed, sick].some(
    (value) => value !== null,
  );
};

/** Everything that was told. A counter that stands still beside values that move is broken, and the page is not. */
export const readingsOf = (sample: GpuSample): string => JSON.stringify({ ...sample, index: null, host: null });

const GONE: Sign = { kind: "bad", detail: "its source tells of other cards and no longer of this one" };

const signOfHeat = ({ temperatureC }: GpuSample, { faultTempC }: GpuPolicy): Sign =>
  temperatureC === null ? SILENT : temperatureC >= faultTempC ? { kind: "bad", detail: `${temperatureC} °C` } : WELL;

const signOfReport = ({ sick }: GpuSample): Sign =>
  sick === null ? SILENT : sick === false ? WELL : { kind: "bad", detail: sick };
