import { asMono, type MonoMs } from "../../kernel/clock.ts";
import { CardNames } from "./card-names.ts";
import { GpuCard, readingsOf, type GpuVerdict } from "./gpu-card.ts";
import type { GpuName } from "./gpu-name.ts";
import type { GpuPolicy } from "./gpu-policy.ts";
import { cardOf, type GpuSample } from "./gpu-sample.ts";

export const SOURCE_STATES = ["waiting", "up", "empty", "partial", "unreadable", "down"] as const;
/** `empty`: it answers, and tells of no card. `partial`: most of the cards it told of are missing. */
export type SourceState = (typeof SOURCE_STATES)[number];

export type Look =
  | {
      readonly kind: "page";
      readonly samples: readonly GpuSample[];
      /** False where it was cut, so that a card's absence tells nothing. */
      readonly whole: boolean;
      /** Where single lines could not be read: whether the card may be on one of them. Absent: every line was read. */
      readonly mentions?: (sample: GpuSample) => boolean;
      /** What tells this reading of the cards from another. Absent: the readings themselves, since an exporter gives one out several times. */
      readonly reading?: string;
    }
  | { readonly kind: "failed"; readonly state: "down" | "unreadable"; readonly why: string };

export interface GpuSource {
  readonly name: string;
  readonly state: SourceState;
  /** Empty where there is nothing to say. */
  readonly why: string;
  /** When it last told of any card. */
  readonly toldAt: MonoMs | undefined;
  /** Hosts of the cards on its last page with any. */
  readonly hosts: readonly string[];
  /** Null before the first page with cards. */
  readonly teller: GpuSample["teller"] | null;
}

const CARDS_MAX = 16_384;
/** Agents come and go with their nodes; one that is silent for so long, while others tell, has left. Exporters are in the file, and stay. */
const AGENT_LEFT_MS = 24 * 3_600_000;
/** Looking for room costs a look at every card, and a larger fleet asks for it with each reading. */
const FULL_MS = 5_000;
/** From this part of a host's cards on, their absence is the fault of whoever tells of them, not the cards'. */
const PARTIAL_PERCENT = 55;

/**
 * All cards that any source has told of, and all sources. Pure state: time comes in.
 *
 * Invariants:
 *   B1. A card is known by its UUID, or by host and index where no UUID is told; never by an index alone.
 *   B2. A look that failed changes no card. Only a whole page can make a card missing, only beside other cards of its host, and only
 *       beside one that it was told with before (its cohort): an address behind which several exporters answer in turn loses none.
 *   B3. Of two sources that tell of one card one is heard (`GpuCard.look` says which).
 *   B4. A row without a UUID is of the card that its source saw in that place last, and a card that has shown its UUID since is not
 *       waited for without it: an exporter that begins anew with other labels loses no card.
 */
export class GpuBook {
  readonly #cards = new Map<string, GpuCard>();
  readonly #names = new CardNames();
  #cohorts = 0;
  readonly #sources = new Map<string, GpuSource>();
  /** When no room was found for a further card. */
  #fullAt: MonoMs = asMono(Number.NEGATIVE_INFINITY);

  cards(): readonly (readonly [string, GpuCard])[] {
    return [...this.#cards];
  }

  sources(): readonly GpuSource[] {
    return [...this.#sources.values()];
  }

  source(name: string): GpuSource | undefined {
    return this.#sources.get(name);
  }

  addSource(name: string): void {
    if (!this.#sources.has(name))
      this.#sources.set(name, { name, state: "waiting", why: "", toldAt: undefined, hosts: [], teller: null });
  }

  /** What it told is forgotten with it. */
  removeSource(name: string): void {
    this.#sources.delete(name);
    for (const [key, card] of this.#cards) {
      card.forgetSource(name);
      if (card.source === name) this.#forget(key, card);
      else this.#names.leave(card, name);
    }
  }

  look(source: string, seen: Look, now: MonoMs, policy: GpuPolicy): void {
    this.addSource(source);
    const before = this.#sources.get(source)!;
    if (seen.kind === "failed") {
      this.#sources.set(source, { ...before, state: seen.state, why: seen.why });
      return;
    }
    const look = { ...seen, samples: seen.samples.map((sample) => this.#withUuid(source, sample)) };
    if (look.samples.length === 0) {
      this.#sources.set(source, { ...before, state: "empty", why: "it answers and tells of no card" });
      return;
    }
    const present = new Set<string>();
    for (const sample of look.samples) {
      const key = keyOf(sample);
      present.add(key);
      this.#observe(key, source, sample, now, policy);
    }
    for (const { name, teller, toldAt } of this.#sources.values())
      if (teller === "agent" && toldAt !== undefined && now - toldAt > AGENT_LEFT_MS && name !== source)
        this.removeSource(name);
    const cohort = this.#gather(source, look.samples);
    const { hidden, why } = this.#lookForMissing(source, look, present, cohort, now);
    this.#sources.set(source, {
      name: source,
      state: hidden ? "partial" : "up",
      why,
      toldAt: now,
      hosts: [...new Set(look.samples.map(({ host }) => host))],
      teller: look.samples[0]?.teller ?? null,
    });
  }

  /** The cards of one page are one cohort from now on: that of most of them, or a new one. */
  #gather(source: string, samples: readonly GpuSample[]): number {
    const members = samples.flatMap((sample) => this.#cards.get(keyOf(sample)) ?? []);
    const sizes = new Map<number, number>();
    for (const card of members.flatMap(({ sample }) => this.#names.wholeOf(sample))) {
      const cohort = card.cohortAt(source);
      if (cohort !== null) sizes.set(cohort, (sizes.get(cohort) ?? 0) + 1);
    }
    const [largest] = [...sizes].toSorted(([a, sizeA], [b, sizeB]) => sizeB - sizeA || a - b);
    const cohort = largest?.[0] ?? (this.#cohorts += 1);
    for (const card of members) card.join(source, cohort);
    return cohort;
  }

  /** Cards are counted host by host, and a split one as one: seven instances that are missing are one card. */
  #lookForMissing(
    source: string,
    { samples, whole, mentions, reading }: Look & { readonly kind: "page" },
    present: ReadonlySet<string>,
    cohort: number,
    now: MonoMs,
  ): { readonly hidden: boolean; readonly why: string } {
    const heard = [...this.#cards].filter(([, card]) => card.source === source);
    const known = heard.filter(([, card]) => card.cohortAt(source) === cohort);
    const strangers = new Set(
      heard.filter(([, card]) => card.cohortAt(source) !== cohort).map(([, { sample }]) => cardOf(sample)),
    );
    const told = new Set(samples.map(cardOf));
    const hosts = new Map<string, { readonly all: Set<string>; readonly missing: Set<string> }>();
    // Cards on this page that another source is heard for stand beside the missing ones too.
    for (const sample of [...known.map(([, card]) => card.sample), ...samples]) {
      const of = hosts.get(sample.host) ?? { all: new Set(), missing: new Set() };
      hosts.set(sample.host, of);
      of.all.add(cardOf(sample));
      if (!told.has(cardOf(sample))) of.missing.add(cardOf(sample));
    }
    const isHidden = (host: string): boolean => {
      const of = hosts.get(host);
      return of !== undefined && of.missing.size > 0 && of.missing.size * 100 >= of.all.size * PARTIAL_PERCENT;
    };
    const pages = new Map<string, string>();
    const pageOf = (host: string): string => {
      const page =
        pages.get(host) ??
        reading ??
        samples
          .filter((sample) => sample.host === host)
          .map(readingsOf)
          .join();
      pages.set(host, page);
      return page;
    };
    for (const [key, card] of known) {
      if (!whole || present.has(key) || mentions?.(card.sample) === true) continue;
      if (told.has(cardOf(card.sample)) || !isHidden(card.sample.host))
        this.#miss(key, card, present, () => card.miss(now, pageOf(card.sample.host)));
    }
    const sizes = [...hosts.values()];
    const sum = (sets: readonly Set<string>[]): number => sets.reduce((total, { size }) => total + size, 0);
    const missing = sum(sizes.map((of) => of.missing)) + strangers.size;
    const all = sum(sizes.map((of) => of.all)) + strangers.size;
    return {
      hidden: strangers.size > 0 || [...hosts.keys()].some(isHidden),
      why: missing === 0 ? "" : `${missing} of ${all} cards are missing`,
    };
  }

  /** The cards that a name means now: none where no source has told of it, several for a card that is split. */
  find(name: GpuName): readonly GpuCard[] {
    return this.#names.find(name);
  }

  verdict(card: GpuCard, now: MonoMs, policy: GpuPolicy): GpuVerdict {
    return card.verdict(now, this.#sources.get(card.source)?.toldAt, policy);
  }

  /** The operator's word that these cards are good. One that nobody tells of any more is no longer waited for. Returns how many were meant. */
  clear(name: GpuName, now: MonoMs, policy: GpuPolicy): number {
    const meant = this.find(name);
    for (const [key, card] of this.#cards) {
      if (!meant.includes(card)) continue;
      if (card.isGone || card.isStale(now, policy)) this.#forget(key, card);
      else card.clear();
    }
    return meant.length;
  }

  #observe(key: string, source: string, sample: GpuSample, now: MonoMs, policy: GpuPolicy): void {
    const known = this.#cards.get(key);
    if (known === undefined) {
      if (this.#cards.size >= CARDS_MAX && !this.#makeRoom(now, policy)) return;
      for (const other of this.#names.wholeOf(sample))
        if ((other.sample.instance === null) !== (sample.instance === null)) this.#forget(keyOf(other.sample), other);
      const card = new GpuCard(source, sample, now, policy);
      this.#cards.set(key, card);
      this.#names.add(card);
      this.#place(card, source, sample);
      return;
    }
    this.#place(known, source, sample);
    known.look(source, sample, now, policy);
  }

  #place(card: GpuCard, source: string, sample: GpuSample): void {
    for (const other of this.#names.place(card, source, sample))
      if (other.sample.uuid === null && other.source === source) this.#forget(keyOf(other.sample), other);
  }

  #withUuid(source: string, sample: GpuSample): GpuSample {
    const { uuid, host, index } = sample;
    return uuid !== null || index === null ? sample : { ...sample, uuid: this.#names.uuidAt(source, host, index) };
  }

  #miss(key: string, card: GpuCard, present: ReadonlySet<string>, miss: () => void): void {
    // A card that is split anew has other instances, and lacks none.
    const siblings = card.sample.instance === null ? [] : this.#names.wholeOf(card.sample);
    if (siblings.some((sibling) => present.has(keyOf(sibling.sample)))) this.#forget(key, card);
    else miss();
  }

  #makeRoom(now: MonoMs, policy: GpuPolicy): boolean {
    if (now - this.#fullAt < FULL_MS) return false;
    const oldest = [...this.#cards]
      .filter(([, card]) => card.isStale(now, policy))
      .sort(([, a], [, b]) => a.seenAt - b.seenAt)[0];
    if (oldest === undefined) this.#fullAt = now;
    else this.#forget(...oldest);
    return oldest !== undefined;
  }

  #forget(key: string, card: GpuCard): void {
    this.#cards.delete(key);
    this.#names.forget(card);
  }
}

/** The name under which a card is shown, and by which it is known. */
export const keyOf = (sample: GpuSample): string =>
  sample.instance === null ? cardOf(sample) : `${cardOf(sample)}/gi${sample.instance}`;
