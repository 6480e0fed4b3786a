import type { FeedReading } from "../../contract/feed.ts";
import type { GpuReport } from "../../contract/fleet.ts";
import { asMono, type MonoMs } from "../../kernel/clock.ts";

/**
 * What agents read of their cards, and what of it a gateway is to be told next.
 *
 * Invariants:
 *   R1. No reading is told twice to one gateway: there it would count as a further sample.
 *   R2. One message tells of few nodes: first of those on which other cards are sick than was told, then of those that were told of
 *       longest ago. So a large fleet costs a gateway no more at a time, and a card that turns sick does not wait for its turn.
 *   R3. What is told carries its age. A node that is silent is soon forgotten, and what gateways know of it grows old there.
 */
export const READINGS_EVERY_MS = 2_000;
export const READINGS_NODES_MAX = 64;
/** A node of which nothing has changed is told of again after this: a reading that is equal is news of its time. */
export const READINGS_AGAIN_MS = 5_000;
const KEEP_MS = 60_000;
const NODES_MAX = 4_096;

class Reading {
  readonly gpus: readonly GpuReport[];
  readonly at: MonoMs;
  #text: string | null = null;

  constructor(gpus: readonly GpuReport[], at: MonoMs) {
    this.gpus = gpus;
    this.at = at;
  }

  /** Two that say the same are the same text. Made when somebody compares, which is once for many gateways and never without one. */
  get text(): string {
    return (this.#text ??= JSON.stringify(this.gpus));
  }

  /** Which cards are sick. */
  get sick(): string {
    return this.gpus.flatMap(({ uuid, health }) => (health === "sick" ? [uuid] : [])).join(" ");
  }
}

/** The newest reading of each node, by name. */
export class GpuReadings {
  readonly #byNode = new Map<string, Reading>();

  heard(node: string, gpus: readonly GpuReport[], at: MonoMs): void {
    if (gpus.length === 0 || (!this.#byNode.has(node) && this.#byNode.size >= NODES_MAX)) return;
    this.#byNode.set(node, new Reading(gpus, at));
  }

  latest(now: MonoMs): ReadonlyMap<string, Reading> {
    for (const [node, { at }] of this.#byNode) if (now - at > KEEP_MS) this.#byNode.delete(node);
    return this.#byNode;
  }
}

/** What one gateway was told. */
export class ToldReadings {
  readonly #told = new Map<string, { readonly reading: Reading; readonly at: MonoMs }>();
  #lastAt: MonoMs = asMono(Number.NEGATIVE_INFINITY);

  /** What is to be told now, and is taken to be told; empty where that is nothing, or too early. */
  next(readings: GpuReadings, now: MonoMs): FeedReading[] {
    if (now - this.#lastAt < READINGS_EVERY_MS) return [];
    const latest = readings.latest(now);
    for (const node of this.#told.keys()) if (!latest.has(node)) this.#told.delete(node);
    const due = [...latest].flatMap(([node, reading]) => {
      const told = this.#told.get(node);
      const toldAt = told?.at ?? Number.NEGATIVE_INFINITY;
      const isNew = told === undefined || reading.at > told.reading.at;
      if (!isNew || (now - toldAt < READINGS_AGAIN_MS && reading.text === told?.reading.text)) return [];
      return [{ node, reading, toldAt, urgent: reading.sick !== (told?.reading.sick ?? "") }];
    });
    const first = due
      .toSorted((a, b) => Number(b.urgent) - Number(a.urgent) || (a.toldAt < b.toldAt ? -1 : 1))
      .slice(0, READINGS_NODES_MAX);
    if (first.length > 0) this.#lastAt = now;
    for (const { node, reading } of first) this.#told.set(node, { reading, at: now });
    return first.map(({ node, reading: { gpus, at } }) => ({ node, gpus: [...gpus], ageMs: Math.max(0, now - at) }));
  }

  /** It goes by another's word now, and what it was told counts no more. */
  clear(): void {
    this.#told.clear();
  }
}
