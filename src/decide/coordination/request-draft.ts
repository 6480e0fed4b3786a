import { RANKS, type Rank } from "../admission/ranks.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { BookView } from "./book-view.ts";
import type { Lease } from "./lease.ts";
import type {
  HeldLease,
  LeaseGrant,
  LeaseRelease,
  LeaseWant,
  RequestedEndpoint,
  SlotRequest,
  WaitingClass,
} from "./slot-request.ts";

export type DraftHead = Omit<SlotRequest, "endpoints" | "release" | "renew" | "wants" | "waiting">;

interface Wanted {
  readonly want: LeaseWant;
  readonly group: string;
}

const NOBODY: WaitingClass = { count: 0, ageMs: 0, goesFirst: false, endpoints: [] };
const LOWER_RANKS = [2, 1] as const;

/** One request while it is put together and on its way: what was told, asked and given back, for when its answer comes. */
export class RequestDraft {
  readonly head: DraftHead;
  readonly #slots: (endpoint: string) => number;
  readonly #endpoints: RequestedEndpoint[] = [];
  readonly #places = new Map<string, number>();
  readonly #release: LeaseRelease[] = [];
  readonly #renew: HeldLease[] = [];
  /** Where each lease was told to be. */
  readonly #told = new Map<Lease, string>();
  readonly #wanted = new Map<string, Wanted>();
  #waiting: readonly [WaitingClass, WaitingClass, WaitingClass] = [NOBODY, NOBODY, NOBODY];

  /** `slots` of an endpoint that is no longer configured are 0. */
  constructor(head: DraftHead, slots: (endpoint: string) => number) {
    this.head = head;
    this.#slots = slots;
  }

  /** False when there is no more room for releases. */
  addRelease(id: string, endpoints: readonly string[], max: number): boolean {
    if (this.#release.length >= max) return false;
    this.#release.push({ id, endpoints: endpoints.map((endpoint) => this.#place(endpoint)) });
    return true;
  }

  addRenewal(lease: Lease, max: number): boolean {
    if (this.#renew.length >= max) return false;
    const movedFrom = lease.countedAt === null ? -1 : this.#place(lease.countedAt);
    this.#renew.push({ id: lease.id, batch: lease.batch, endpoint: this.#place(lease.endpoint), movedFrom });
    this.#told.set(lease, lease.endpoint);
    return true;
  }

  /** Asks for up to `max` leases for those who wait, in the order in which they would go, and says that they wait. */
  addWants({ waiting, plan }: Pick<BookView, "waiting" | "plan">, max: number, newId: () => string, now: MonoMs): void {
    const ranks: WaitingClass[] = [];
    const wants: { readonly rank: Rank; readonly group: string; readonly endpoints: readonly number[] }[] = [];
    for (const rank of RANKS) {
      const { count, groups, since, waiting: all } = waiting[rank];
      const places = new Set<number>();
      let left = count;
      for (const { name, count: inGroup } of groups) {
        const some = plan(name, Math.min(left, inGroup, max), rank);
        left -= Math.min(left, inGroup);
        for (const endpoints of some) {
          const at = endpoints.map((endpoint) => this.#place(endpoint));
          for (const place of at) places.add(place);
          wants.push({ rank, group: name, endpoints: at });
        }
      }
      ranks.push({
        count: all,
        ageMs: Math.floor(now - since),
        goesFirst: waiting[rank].goesFirst,
        endpoints: [...places],
      });
    }
    const [interactive = NOBODY, system = NOBODY, batch = NOBODY] = ranks;
    this.#waiting = [interactive, system, batch];
    // One of a lower class whose share is due stands before all others.
    for (const rank of LOWER_RANKS) {
      const at = waiting[rank].goesFirst ? wants.findIndex((want) => want.rank === rank) : -1;
      if (at > 0) wants.unshift(...wants.splice(at, 1));
    }
    for (const [at, { rank, group, endpoints }] of wants.slice(0, max).entries()) {
      const goesFirst = waiting[rank].goesFirst && wants.findIndex((want) => want.rank === rank) === at;
      const want = { id: newId(), rank, goesFirst, endpoints };
      this.#wanted.set(want.id, { want, group });
    }
  }

  finish(): SlotRequest {
    return {
      ...this.head,
      endpoints: this.#endpoints,
      release: this.#release,
      renew: this.#renew,
      wants: [...this.#wanted.values()].map(({ want }) => want),
      waiting: this.#waiting,
    };
  }

  // For the answer

  get released(): readonly string[] {
    return this.#release.map(({ id }) => id);
  }

  get renewed(): Iterable<Lease> {
    return this.#told.keys();
  }

  tells(lease: Lease): boolean {
    return this.#told.has(lease);
  }

  /** Where the lease is counted now that this was done. */
  toldAt(lease: Lease): string | undefined {
    return this.#told.get(lease);
  }

  rankOf(id: string): Rank | undefined {
    return this.#wanted.get(id)?.want.rank;
  }

  endpointAt(place: number): string {
    return this.#endpoints[place]?.token ?? "";
  }

  /** Each want, with the endpoints where it may have been granted. */
  wantedAt(): [id: string, endpoints: readonly string[]][] {
    return [...this.#wanted].map(([id, { want }]) => [id, want.endpoints.map((place) => this.endpointAt(place))]);
  }

  /** Rank and group of each want that was not granted. */
  denied(granted: readonly LeaseGrant[]): Set<string> {
    const given = new Set(granted.map(({ id }) => id));
    const denied = new Set<string>();
    for (const [id, { want, group }] of this.#wanted) if (!given.has(id)) denied.add(waitKey(want.rank, group));
    return denied;
  }

  /** Whether the store knows after this that somebody waits here. */
  staysRegistered(granted: readonly LeaseGrant[]): boolean {
    const left = this.#waiting.map(({ count }) => count);
    for (const { id } of granted) {
      const rank = this.rankOf(id);
      if (rank !== undefined) left[rank] = (left[rank] ?? 0) - 1;
    }
    return left.some((count) => count > 0);
  }

  #place(endpoint: string): number {
    const known = this.#places.get(endpoint);
    if (known !== undefined) return known;
    const place = this.#endpoints.length;
    this.#endpoints.push({ token: endpoint, slots: this.#slots(endpoint) });
    this.#places.set(endpoint, place);
    return place;
  }
}

/** Those of one class that ask for the same endpoints: the store says yes or no to all of them alike. */
export const waitKey = (rank: number, group: string): string => `${rank} ${group}`;
