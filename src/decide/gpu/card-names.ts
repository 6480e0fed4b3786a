import type { GpuCard } from "./gpu-card.ts";
import { gpuAlias, type GpuName } from "./gpu-name.ts";
import { cardOf, type GpuSample } from "./gpu-sample.ts";

/** Where a source sees a card, and the names that come of it. */
interface Place {
  readonly host: string;
  readonly index: number;
  readonly aliases: readonly string[];
}

/**
 * By which names cards are found: their UUID, and the places where sources see them. The name of a split card leads to all its instances.
 *
 * Invariants:
 *   M1. A place means the card that each source saw there last, whichever source is heard. So it changes hands with a source's own page
 *       alone, and a card that comes back to its place has its name back.
 */
export class CardNames {
  readonly #byAlias = new Map<string, Set<GpuCard>>();
  readonly #places = new Map<GpuCard, Map<string, Place>>();

  find(name: GpuName): readonly GpuCard[] {
    return [...(this.#byAlias.get(gpuAlias(name)) ?? [])];
  }

  /** Everything that goes by the card's own name, its instances included. */
  wholeOf({ uuid, host, index }: GpuSample): readonly GpuCard[] {
    if (uuid !== null) return this.find({ kind: "uuid", uuid, instance: null });
    return index === null ? [] : this.find({ kind: "place", host, index, instance: null });
  }

  add(card: GpuCard): void {
    for (const alias of uuidAliases(card.sample)) this.#name(card, alias);
  }

  forget(card: GpuCard): void {
    for (const alias of uuidAliases(card.sample)) this.#unname(card, alias);
    for (const source of [...(this.#places.get(card)?.keys() ?? [])]) this.leave(card, source);
    this.#places.delete(card);
  }

  /** The source sees the card there. Returns the cards that it saw there before. */
  place(card: GpuCard, source: string, { host, index, instance }: GpuSample): readonly GpuCard[] {
    const before = this.#places.get(card)?.get(source);
    if (before?.host === host && before.index === index) return [];
    this.leave(card, source);
    if (index === null) return [];
    const bare: GpuName = { kind: "place", host, index, instance: null };
    const displaced = this.find(bare).filter(
      (other) => cardOf(other.sample) !== cardOf(card.sample) && this.#isAt(other, source, host, index),
    );
    for (const other of displaced) this.leave(other, source);
    const aliases = [bare, ...(instance === null ? [] : [{ ...bare, instance }])].map(gpuAlias);
    const places = this.#places.get(card) ?? new Map<string, Place>();
    this.#places.set(card, places.set(source, { host, index, aliases }));
    for (const alias of aliases) this.#name(card, alias);
    return displaced;
  }

  /** The source sees the card nowhere any more. */
  leave(card: GpuCard, source: string): void {
    const places = this.#places.get(card);
    const left = places?.get(source);
    if (places === undefined || left === undefined) return;
    places.delete(source);
    const kept = new Set([...places.values()].flatMap(({ aliases }) => aliases));
    for (const alias of left.aliases) if (!kept.has(alias)) this.#unname(card, alias);
  }

  /** The UUID of the card that the source saw in a place last. */
  uuidAt(source: string, host: string, index: number): string | null {
    const there = this.find({ kind: "place", host, index, instance: null });
    return there.find((card) => this.#isAt(card, source, host, index))?.sample.uuid ?? null;
  }

  #isAt(card: GpuCard, source: string, host: string, index: number): boolean {
    const place = this.#places.get(card)?.get(source);
    return place?.host === host && place.index === index;
  }

  #name(card: GpuCard, alias: string): void {
    const named = this.#byAlias.get(alias);
    if (named === undefined) this.#byAlias.set(alias, new Set([card]));
    else named.add(card);
  }

  #unname(card: GpuCard, alias: string): void {
    const named = this.#byAlias.get(alias);
    named?.delete(card);
    if (named?.size === 0) this.#byAlias.delete(alias);
  }
}

function uuidAliases({ uuid, instance }: GpuSample): readonly string[] {
  if (uuid === null) return [];
  const bare: GpuName = { kind: "uuid", uuid, instance: null };
  return [bare, ...(instance === null ? [] : [{ ...bare, instance }])].map(gpuAlias);
}
