import { BATCH, type Rank } from "../admission/ranks.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { BookEffects, BookEndpoint, BookFrame, BookLimits, BookMode, BookView } from "./book-view.ts";
import { fairShare, HoldTimes, OpenShare } from "./fair-share.ts";
import { isGoodFor, type Lease } from "./lease.ts";
import { RequestDraft, waitKey } from "./request-draft.ts";
import { Settling } from "./settling.ts";
import { BOOT_TTL_MS, type SlotAnswer, type SlotRequest } from "./slot-request.ts";

/**
 * The leases of one gateway for one upstream: which it has in hand, which its calls hold, what it asks for next, and what it
 * may do without asking while the store is away. Pure: time and answers come in.
 *
 * Invariants:
 *   B1. While shared, a call is admitted only with a lease that the store granted. Each lease is held by one call, in hand, or
 *       to be released, and is released until the store acknowledged it or it has lapsed.
 *   B2. A lease of which it is not known whether it was granted is never used, and is released (statement C7).
 *   B3. One request at a time, with everything in it that there is to ask and to give back.
 *   B4. While the store is away, calls are admitted up to a share that ramps (fair-share.ts); what they hold is told to the
 *       store as the truth before anything new is asked for.
 *   B5. After the store was emptied nothing is taken beyond the start of that ramp until all gateways have told theirs, and by
 *       newcomers no more than a part of the slots (settling.ts).
 */

export interface BookSettings {
  /** Of this gateway; unique among all. */
  readonly gateway: string;
  readonly ttlMs: number;
}

/** Leases told in one request at most. */
const RENEWED_MAX = 500;
const RELEASED_MAX = 500;
const WANTED_MAX = 32;

const NOTHING: BookEffects = { mayAdmit: false, lost: 0, emptied: false, elsewhere: null };
/** Answers in a row that say they came too late: more than a clock that was set would explain. */
const LATE_MAX = 3;

export class LeaseBook {
  readonly settings: BookSettings;
  readonly holdTimes = new HoldTimes();
  #mode: BookMode = "joining";
  #reason = "";
  readonly #hand: Lease[] = [];
  readonly #held = new Map<number, Lease>();
  /** Lease id to where it may be counted, and when it has lapsed by itself. */
  readonly #releases = new Map<string, { readonly endpoints: readonly string[]; readonly until: MonoMs }>();
  /** Leases to be told with the next requests. */
  readonly #untold = new Set<Lease>();
  #draft: RequestDraft | null = null;
  #ids = 0;
  #boot = "";
  #reassert = false;
  /** Rank and group of waiting requests that the store has said no to since it last told us of a free slot. */
  readonly #denied = new Set<string>();
  #registered = false;
  /** The store forgets that somebody waits here unless it is told again. */
  #sayAgain = false;
  #renewDue = true;
  /** The store's time at a moment of ours, which is not earlier than that of the answer. */
  #serverTime: { readonly at: number; readonly seenAt: MonoMs } | null = null;
  #lastAnswerAt: MonoMs | null = null;
  #seen: { readonly others: number; readonly othersBatch: number } | null = null;
  readonly #othersOn = new Map<string, number>();
  #open: OpenShare | null = null;
  readonly #settling = new Settling();
  /** Gateways that the store last knew to share this upstream. */
  #here = 1;
  #late = 0;

  constructor(settings: BookSettings) {
    this.settings = settings;
  }

  get mode(): BookMode {
    return this.#mode;
  }

  /** Why it is open; empty when it is not. */
  get reason(): string {
    return this.#reason;
  }

  get asking(): boolean {
    return this.#draft !== null;
  }

  get held(): number {
    return this.#held.size;
  }

  get inHand(): number {
    return this.#hand.length;
  }

  /** To be released and not acknowledged. */
  get unreleased(): number {
    return this.#releases.size;
  }

  get lostLeases(): number {
    let lost = 0;
    for (const lease of this.#held.values()) if (lease.lost) lost += 1;
    return lost;
  }

  /** Slots that other gateways hold, as last told; null when unknown. */
  get others(): number | null {
    return this.#seen?.others ?? null;
  }

  othersOn(endpoint: string): number {
    return this.#othersOn.get(endpoint) ?? 0;
  }

  get lastAnswerAt(): MonoMs | null {
    return this.#lastAnswerAt;
  }

  /** Whether fewer slots are taken than there are, since the store may not know yet what runs at other gateways. */
  isSettling(now: MonoMs): boolean {
    return this.#settling.isBound(now);
  }

  /** Slots that this gateway may hold now; null while the store decides. */
  limit(limits: BookLimits, now: MonoMs): number | null {
    return this.#open?.all(limits.slots, now) ?? null;
  }

  // What the pool asks

  /** `usable`: the endpoints that could take the request. */
  permits(rank: Rank, usable: readonly BookEndpoint[], limits: BookLimits, now: MonoMs): boolean {
    if (this.#open !== null && !this.#permitsAlone(this.#open, rank, limits, now)) return false;
    return usable.some((endpoint) => this.mayBook(rank, endpoint, now));
  }

  /** Whether a call of the rank may be booked there. While the store is away each endpoint has its own part. */
  mayBook(rank: Rank, { token, slots }: BookEndpoint, now: MonoMs): boolean {
    if (this.#open === null) return this.#hand.some((lease) => isGoodFor(lease, rank, token));
    return this.#heldOn(token) < this.#open.onEndpoint(token, slots, now);
  }

  /** The call is admitted: it takes a lease in hand, or while the store is away one of its own making. */
  take(call: number, rank: Rank, endpoint: string, now: MonoMs): void {
    const lease = this.#open === null ? this.#fromHand(rank, endpoint) : this.#made(rank, endpoint);
    lease.takenAt = now;
    this.#held.set(call, lease);
  }

  /** The call goes on, on another endpoint. */
  move(call: number, endpoint: string): void {
    const lease = this.#held.get(call);
    if (lease === undefined || lease.endpoint === endpoint) return;
    if (lease.known) lease.countedAt ??= lease.endpoint;
    lease.endpoint = endpoint;
    this.#untold.add(lease);
  }

  end(call: number, now: MonoMs): void {
    const lease = this.#held.get(call);
    if (lease === undefined) return;
    this.#held.delete(call);
    this.holdTimes.ended(now - lease.takenAt);
    this.#giveBack(lease, now);
  }

  /** What nobody took is of use to somebody else. */
  returnHand(now: MonoMs): void {
    for (const lease of this.#hand.splice(0)) this.#giveBack(lease, now);
  }

  /** The gateway stops: everything is given back. */
  endAll(now: MonoMs): void {
    for (const call of [...this.#held.keys()]) this.end(call, now);
    this.returnHand(now);
    this.#draft = null;
  }

  // What is told from outside

  /** Slots may have come free, or endpoints have changed: those who were denied are asked for again. */
  retryDenied(): void {
    this.#denied.clear();
    this.#sayAgain = true;
  }

  /** It is time to say what runs here; while the store is away, to try and come back. */
  renew(): void {
    this.#renewDue = true;
  }

  /** The store is away, by whatever evidence. */
  fail(reason: string, { store }: BookFrame, now: MonoMs): BookEffects {
    if (this.#open !== null) return NOTHING;
    this.#mode = "open";
    this.#reason = reason;
    this.returnHand(now);
    const gateways = Math.max(store.gateways, this.#here);
    const { others = null, othersBatch = null } = this.#seen ?? {};
    const on = new Map([...this.#othersOn].map(([token, there]) => [token, { own: 0, others: there }]));
    for (const { endpoint } of this.#held.values()) {
      const { own, others: there } = on.get(endpoint) ?? { own: 0, others: 0 };
      on.set(endpoint, { own: own + 1, others: there });
    }
    this.#open = new OpenShare({
      at: now,
      rampMs: this.holdTimes.p95Ms(),
      gateways,
      all: { own: this.#held.size, others },
      batch: { own: this.#heldBatch(), others: othersBatch },
      on,
    });
    this.#settling.end();
    return { ...NOTHING, mayAdmit: true };
  }

  // Asking

  /** The next request, or null when there is nothing to ask now. */
  compose(view: BookView, now: MonoMs): SlotRequest | null {
    if (this.#draft !== null) return null;
    for (const [id, { until }] of this.#releases) if (until <= now) this.#releases.delete(id);
    if (this.#mode !== "shared") return this.#composeAlone(view, now);
    if (this.#settling.endsBy(now)) this.#denied.clear();
    if (this.#renewDue) this.#tellAll();
    const waits = view.waiting.some(({ waiting }) => waiting > 0);
    const due =
      this.#renewDue ||
      this.#reassert ||
      this.#untold.size > 0 ||
      this.#releases.size > 0 ||
      this.#registered !== waits ||
      (waits && this.#sayAgain);
    if (!due && !this.#wantsMore(view)) return null;
    const draft = this.#begin(view, now);
    if (!this.#reassert) draft.addWants(view, this.#room(), () => this.#newId(), now);
    return draft.finish();
  }

  /** What came of the last request. */
  answered(answer: SlotAnswer, frame: BookFrame, now: MonoMs): BookEffects {
    const draft = this.#endDraft();
    this.#serverTime = { at: answer.now, seenAt: now };
    if (answer.kind === "done") {
      this.#late = 0;
      return this.#done(draft, answer, frame, now);
    }
    this.#tellAgain(draft);
    if (answer.kind === "reset") {
      for (const lease of this.#held.values()) lease.known = false;
      this.#reassert = true;
      this.#tellAll();
      return NOTHING;
    }
    // The store's clock was set, or it is slow: the next request goes by its new time.
    this.#late += 1;
    return this.#late < LATE_MAX ? NOTHING : this.fail("answers come too late", frame, now);
  }

  /** There is no answer: what was asked for may be done all the same, now or later. */
  unanswered(reason: string, frame: BookFrame, now: MonoMs): BookEffects {
    const draft = this.#endDraft();
    // Also after a refusal: what a script wrote before its fault remains.
    for (const [id, endpoints] of draft.wantedAt()) this.#releases.set(id, { endpoints, until: this.#lapses(now) });
    this.#tellAgain(draft);
    return this.fail(reason, frame, now);
  }

  // Inside

  #permitsAlone(open: OpenShare, rank: Rank, limits: BookLimits, now: MonoMs): boolean {
    if (this.#held.size >= open.all(limits.slots, now)) return false;
    return rank !== BATCH || this.#heldBatch() < open.batch(limits.batchMax, now);
  }

  #heldBatch(): number {
    let batch = 0;
    for (const lease of this.#held.values()) batch += Number(lease.batch);
    return batch;
  }

  #heldOn(endpoint: string): number {
    let held = 0;
    for (const lease of this.#held.values()) if (lease.endpoint === endpoint) held += 1;
    return held;
  }

  #fromHand(rank: Rank, endpoint: string): Lease {
    // A lease of batch is good for anyone, so it is the last that a higher class takes.
    let at = this.#hand.findIndex((lease) => lease.endpoint === endpoint && lease.batch === (rank === BATCH));
    if (at < 0) at = this.#hand.findIndex((lease) => isGoodFor(lease, rank, endpoint));
    const [lease] = at < 0 ? [] : this.#hand.splice(at, 1);
    if (lease === undefined) throw new Error(`coordination: a call was admitted to ${endpoint} without a lease`);
    if (lease.batch && rank !== BATCH) {
      lease.batch = false;
      this.#untold.add(lease);
    }
    return lease;
  }

  #made(rank: Rank, endpoint: string): Lease {
    const lease = this.#newLease(this.#newId(), rank === BATCH, endpoint);
    this.#untold.add(lease);
    return lease;
  }

  #newLease(id: string, batch: boolean, endpoint: string): Lease {
    return { id, batch, endpoint, countedAt: null, known: false, lost: false, takenAt: 0 as MonoMs };
  }

  #newId(): string {
    return `${this.settings.gateway}-${(this.#ids += 1).toString(36)}`;
  }

  #lapses(now: MonoMs): MonoMs {
    return (now + this.settings.ttlMs) as MonoMs;
  }

  #giveBack(lease: Lease, now: MonoMs): void {
    this.#untold.delete(lease);
    // One that the store never heard of, and that is not on its way there, needs no release.
    if (!lease.known && this.#draft?.tells(lease) !== true) return;
    const endpoints = lease.countedAt === null ? [lease.endpoint] : [lease.endpoint, lease.countedAt];
    this.#releases.set(lease.id, { endpoints, until: this.#lapses(now) });
  }

  #tellAll(): void {
    for (const lease of this.#held.values()) this.#untold.add(lease);
  }

  /** What was told has not been heard. */
  #tellAgain(draft: RequestDraft): void {
    const held = new Set(this.#held.values());
    for (const lease of draft.renewed) if (held.has(lease)) this.#untold.add(lease);
  }

  #wantsMore({ waiting }: BookView): boolean {
    if (this.#room() === 0) return false;
    return waiting.some(
      ({ count, groups }, rank) => count > 0 && groups.some(({ name }) => !this.#denied.has(waitKey(rank, name))),
    );
  }

  /** How many leases may be asked for. */
  #room(): number {
    return this.#settling.room(WANTED_MAX, this.#held.size + this.#hand.length);
  }

  /** Joining, and coming back: first the truth of what runs here, then, in the next request, what is wanted. */
  #composeAlone(view: BookView, now: MonoMs): SlotRequest | null {
    if (!this.#renewDue) return null;
    this.#tellAll();
    this.#reassert = view.store.up;
    return this.#begin(view, now).finish();
  }

  #begin(view: BookView, now: MonoMs): RequestDraft {
    const renews = this.#renewDue;
    this.#renewDue = false;
    this.#sayAgain = false;
    const server = this.#serverTime;
    const notAfter = server === null ? 0 : Math.floor(server.at + (now - server.seenAt) + view.store.stepMs);
    const head = {
      gateway: this.settings.gateway,
      boot: this.#boot,
      nonce: this.#newId(),
      reassert: this.#reassert,
      renews,
      // Of a store that knew this upstream before, its age as a whole says nothing.
      settled: view.store.settled && this.#boot === "",
      notAfter,
      ttlMs: this.settings.ttlMs,
      ...this.#settling.limits(view.limits),
    };
    const draft = new RequestDraft(head, (endpoint) => this.#settling.part(view.slotsOf(endpoint)));
    for (const [id, { endpoints }] of this.#releases) if (!draft.addRelease(id, endpoints, RELEASED_MAX)) break;
    for (const lease of this.#untold) {
      // Without the store's word only what it knows already is kept alive there.
      if (this.#mode === "open" && !this.#reassert && !lease.known) continue;
      if (!draft.addRenewal(lease, RENEWED_MAX)) break;
    }
    for (const lease of draft.renewed) this.#untold.delete(lease);
    this.#draft = draft;
    return draft;
  }

  #endDraft(): RequestDraft {
    const draft = this.#draft;
    if (draft === null) throw new Error("coordination: an answer to nothing that was asked");
    this.#draft = null;
    return draft;
  }

  #done(
    draft: RequestDraft,
    answer: Extract<SlotAnswer, { kind: "done" }>,
    frame: BookFrame,
    now: MonoMs,
  ): BookEffects {
    const quietMs = this.#lastAnswerAt === null ? 0 : now - this.#lastAnswerAt;
    const othersBefore = this.#seen?.others ?? 0;
    this.#lastAnswerAt = now;
    for (const id of draft.released) this.#releases.delete(id);
    const lost = this.#heard(draft, new Set(answer.lost));
    // The store was given up on while this was on its way: what it granted is given back.
    const usable = this.#open === null;
    for (const { id, endpoint } of answer.granted) {
      const lease = this.#newLease(id, draft.rankOf(id) === BATCH, draft.endpointAt(endpoint));
      lease.known = true;
      if (usable) this.#hand.push(lease);
      else this.#giveBack(lease, now);
    }
    this.#see(draft, answer);
    if (!usable && !draft.head.reassert) return { ...NOTHING, lost };
    const joining = this.#boot === "";
    const emptied = !joining && answer.boot !== this.#boot && quietMs < BOOT_TTL_MS / 2;
    this.#boot = answer.boot;
    if (emptied || draft.head.reassert) this.#settle(answer.bootAgeMs, emptied, othersBefore, frame, now);
    else if (this.#settling.endsWith(answer.here)) this.#denied.clear();
    this.#here = answer.here;
    for (const key of draft.denied(answer.granted)) this.#denied.add(key);
    this.#registered = draft.staysRegistered(answer.granted);
    const elsewhere = { crowded: answer.crowded, sharers: answer.waitingGateways };
    if (draft.head.reassert && this.#untold.size > 0) {
      this.#renewDue = true; // There is more to tell than one request holds.
      return { ...NOTHING, lost, emptied, elsewhere };
    }
    if (draft.head.reassert) {
      this.#reassert = false;
      this.#mode = "shared";
      this.#reason = "";
      this.#open = null;
      this.#denied.clear();
    }
    return { mayAdmit: true, lost, emptied, elsewhere };
  }

  /** The store has heard what was told. Returns how many leases were found to be lost. */
  #heard(draft: RequestDraft, gone: ReadonlySet<string>): number {
    let lost = 0;
    for (const lease of draft.renewed) {
      const isLost = gone.has(lease.id);
      if (isLost && !lease.lost) lost += 1;
      lease.known = !isLost;
      lease.lost = isLost;
      // It may have moved on while the request was on its way.
      const at = draft.toldAt(lease);
      lease.countedAt = at === undefined || at === lease.endpoint ? null : at;
    }
    return lost;
  }

  /** What the others hold: all but what the store counts for us, which is what we hold, have in hand, and have not yet given back. */
  #see(draft: RequestDraft, answer: Extract<SlotAnswer, { kind: "done" }>): void {
    let own = 0;
    let ownBatch = 0;
    const ownOn = new Map<string, number>();
    const count = (endpoint: string, batch: boolean): void => {
      own += 1;
      ownBatch += Number(batch);
      ownOn.set(endpoint, (ownOn.get(endpoint) ?? 0) + 1);
    };
    for (const lease of [...this.#held.values(), ...this.#hand])
      if (lease.known) count(lease.countedAt ?? lease.endpoint, lease.batch);
    for (const { endpoints } of this.#releases.values()) count(endpoints[0] ?? "", false);
    this.#seen = {
      others: Math.max(0, answer.inUse - own),
      othersBatch: Math.max(0, answer.batchInUse - ownBatch),
    };
    for (const [place, used] of answer.endpointsInUse.entries()) {
      const endpoint = draft.endpointAt(place);
      this.#othersOn.set(endpoint, Math.max(0, used - (ownOn.get(endpoint) ?? 0)));
    }
  }

  /**
   * The store may not know yet what runs at the other gateways: those that were away as this one was come back within
   * SETTLE_MS, and those of an emptied store, if they live, within a lease's time. Until then this one keeps to its share; one that
   * has just started has none yet.
   */
  #settle(bootAgeMs: number, emptied: boolean, others: number, { limits, store }: BookFrame, now: MonoMs): void {
    if (this.#mode === "joining" && this.#open === null && !emptied) {
      this.#settling.asNewcomer(bootAgeMs, now);
      return;
    }
    const gateways = Math.max(store.gateways, this.#here);
    const share = { slots: limits.slots, own: this.#held.size, others, gateways };
    const held = this.limit(limits, now) ?? fairShare(share, 0);
    // Those who share at all, if they are more: who was away when it was last counted who shares this upstream may hold slots too.
    if (emptied) this.#settling.afterLoss(held, gateways, this.settings.ttlMs, now);
    else this.#settling.afterOutage(held, now);
  }
}
