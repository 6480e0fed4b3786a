import { z } from "zod";
import type { JobRow, OverflowRow } from "../../contract/board.ts";
import { jobView } from "../../contract/job-view.ts";
import {
  approvalsView,
  overflowStateView,
  spendView,
  type ApprovalView,
  type SpendView,
} from "../../contract/overflow-view.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import type { AskFor, Asker } from "./gateway-asks.ts";
import { jobRow } from "./board-rows.ts";
import type { GatewayDesk } from "./gateway-desk.ts";
import type { GatewayPeer } from "./gateway-peer.ts";

/** Jobs and money are looked up in stores, so they are asked for less often than what gateways have in hand. */
const EVERY_MS = 2_000;
const LIST_MAX = 100;
/** Nobody's key: what is read here is shown to whoever may see it. */
const READER: Asker = { keyId: "board", role: "operator" };

const jobPage = z.object({ data: z.array(jobView).max(LIST_MAX) });
const LISTS = ["", "&state=running", "&state=queued"] as const;

export interface Polled {
  readonly jobs: ReadonlyMap<string, JobRow>;
  readonly overflow: ReadonlyMap<string, OverflowRow>;
  readonly approvals: ReadonlyMap<string, ApprovalView>;
  /** Null: nobody has overflow rules, or has told. */
  readonly spend: SpendView | null;
}

const NOTHING: Polled = { jobs: new Map(), overflow: new Map(), approvals: new Map(), spend: null };

interface OfOne {
  readonly jobs: readonly JobRow[];
  readonly overflow: readonly OverflowRow[];
  readonly approvals: readonly ApprovalView[];
  readonly spend: SpendView | null;
}

/** What gateways have in their stores of jobs and money, asked for while somebody looks. What one can't tell is left out. */
export class GatewayPoll {
  readonly #clock: Clock;
  readonly #desk: GatewayDesk;
  #timer: Timer | null = null;
  #isRunning = false;
  #polled: Polled = NOTHING;

  constructor(clock: Clock, desk: GatewayDesk) {
    this.#clock = clock;
    this.#desk = desk;
  }

  get polled(): Polled {
    return this.#polled;
  }

  start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    void this.#poll();
  }

  stop(): void {
    this.#isRunning = false;
    this.#timer?.cancel();
    this.#polled = NOTHING;
  }

  async #poll(): Promise<void> {
    const each = await Promise.all(this.#desk.peers.map((peer) => this.#of(peer)));
    if (!this.#isRunning) return;
    this.#polled = together(each);
    this.#timer = this.#clock.after(EVERY_MS, () => void this.#poll());
  }

  async #of(peer: GatewayPeer): Promise<OfOne> {
    const ids = this.#desk.overflowsOf(peer);
    const has = ids.length > 0;
    const [lists, states, spend, approvals] = await Promise.all([
      Promise.all(LISTS.map((more) => this.#read(peer, `/v1/jobs?limit=${LIST_MAX}${more}`, jobPage))),
      Promise.all(ids.map((id) => this.#read(peer, `/overflow/${encodeURIComponent(id)}`, overflowStateView))),
      has ? this.#read(peer, "/admin/overflow/spend", spendView) : null,
      has ? this.#read(peer, "/admin/overflow/approvals", approvalsView) : null,
    ]);
    return {
      jobs: lists.flatMap((list) => list?.data ?? []).map((job) => jobRow(job, peer.id)),
      overflow: states.flatMap((state) => (state === null ? [] : { ...state, gateway: peer.id })),
      approvals: approvals?.data ?? [],
      spend,
    };
  }

  /** Null: it can't tell now. */
  async #read<S extends z.ZodType>(peer: GatewayPeer, target: string, schema: S): Promise<z.output<S> | null> {
    const what: AskFor = { method: "GET", target };
    try {
      const { status, text } = await this.#desk.asks.askWhole(peer, READER, what);
      if (status !== 200) return null;
      return schema.safeParse(JSON.parse(text)).data ?? null;
    } catch {
      return null;
    }
  }
}

function together(each: readonly OfOne[]): Polled {
  const spends = each.flatMap(({ spend }) => spend ?? []);
  return {
    // Gateways that share a store tell of the same jobs: the first one's word is as good as another's.
    jobs: firstOf(
      each.flatMap(({ jobs }) => jobs),
      ({ id }) => id,
    ),
    overflow: firstOf(
      each.flatMap(({ overflow }) => overflow),
      ({ upstream }) => upstream,
    ),
    approvals: firstOf(
      each.flatMap(({ approvals }) => approvals),
      ({ tier, job }) => `${tier}/${job}`,
    ),
    spend: spends.reduce<SpendView | null>((all, one) => (all === null ? one : addSpend(all, one)), null),
  };
}

function firstOf<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T> {
  const found = new Map<string, T>();
  for (const item of items) if (!found.has(keyOf(item))) found.set(keyOf(item), item);
  return found;
}

/** A ledger that gateways share is told of by each, and counts once; ledgers of their own add up. */
function addSpend(all: SpendView, one: SpendView): SpendView {
  if (all.ledger === "redis") return all;
  const known = new Map(all.tiers.map((tier) => [tier.tier, tier]));
  for (const tier of one.tiers) {
    const before = known.get(tier.tier);
    known.set(
      tier.tier,
      before === undefined
        ? tier
        : {
            ...before,
            spent_today: before.spent_today + tier.spent_today,
            reserved_today: before.reserved_today + tier.reserved_today,
            spent_this_month: before.spent_this_month + tier.spent_this_month,
            reserved_this_month: before.reserved_this_month + tier.reserved_this_month,
            halted: before.halted ?? tier.halted,
          },
    );
  }
  return { ...all, stopped: all.stopped ?? one.stopped, tiers: [...known.values()], open: [...all.open, ...one.open] };
}
