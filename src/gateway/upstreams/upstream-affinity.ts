import type { RoutingSettings } from "../../contract/gateway-config.ts";
import { AffinityTable, type AffinityWish } from "../../decide/routing/affinity-table.ts";
import type { AffinityView } from "../../decide/routing/prefer-warm.ts";
import type { SlotSeeker } from "./slot-seeker.ts";

/** What one upstream believes to be warm where. Nothing of it is made before the first request that asks for it. */
export class UpstreamAffinity {
  #table: AffinityTable | null = null;

  /** Undefined for a request without a wish. */
  view(wish: AffinityWish | null, { loadBound }: RoutingSettings): AffinityView | undefined {
    if (wish === null) return undefined;
    this.#table ??= new AffinityTable();
    return { wish, matches: this.#table.matches(wish), loadBound };
  }

  /** What the first `count` of these would like to find warm; none where the upstream does not look for it. */
  first(
    seekers: Iterable<SlotSeeker>,
    isOne: (seeker: SlotSeeker) => boolean,
    count: number,
    settings: RoutingSettings,
  ): readonly (AffinityView | undefined)[] {
    if (!settings.prefixAffinity && settings.sessionHeader === null) return [];
    const found: (AffinityView | undefined)[] = [];
    for (const seeker of seekers) {
      if (found.length >= count) break;
      if (isOne(seeker)) found.push(this.view(seeker.routing.affinity, settings));
    }
    return found;
  }

  /** The endpoint was given a request with this wish. */
  note(wish: AffinityWish | null, endpointId: string): void {
    if (wish !== null) this.#table?.note(wish, endpointId);
  }

  /** How many prefixes and sessions are known. */
  get entries(): number {
    return this.#table?.size ?? 0;
  }
}
