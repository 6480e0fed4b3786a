import type { Lack } from "../../decide/overflow/decide-overflow.ts";
import {
  haltNow,
  periodOf,
  stepLedger,
  type Account,
  type Approval,
  type ApprovedThing,
  type LedgerEvent,
  type LedgerView,
  type Reservation,
  type Refusal,
  type ReserveAsk,
  type SpendSwitch,
  type Sums,
} from "../../decide/overflow/ledger-book.ts";
import type { Clock } from "../../kernel/clock.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";
import type { Random } from "../../kernel/random.ts";
import type { Signer } from "../../kernel/signer.ts";
import { readApproval, writeApproval } from "./signed-approval.ts";
import type { Doc, DocCommit, DocStore, DocWrite } from "./doc-store.ts";

/** What names a reservation and all that is looked at with it. */
export interface ReservationName {
  readonly id: string;
  readonly tier: string;
  readonly subject: string;
}

export type LedgerOutcome =
  | { readonly kind: "done"; readonly view: LedgerView }
  /** `ledger_away`: nobody can know whether it took effect. */
  | { readonly kind: "refused"; readonly lack: Lack; readonly why: string };

export interface TierSpend {
  readonly tier: string;
  readonly currency: string | null;
  readonly day: string;
  readonly month: string;
  readonly today: Sums;
  readonly thisMonth: Sums;
  readonly halted: Account["halted"];
}

/** Remembers which life of the ledger this gateway knows. */
export interface LedgerMemory {
  read(): string | null;
  write(epoch: string): void;
}

export interface LedgerDeps {
  readonly store: DocStore;
  readonly memory: LedgerMemory;
  readonly newEpoch: () => string;
  readonly clock: Clock;
  readonly random: Random;
  /** A reservation was settled, by this step and no other. */
  readonly onSettled?: (reservation: Reservation) => void;
  /** What approvals are signed with; asked for only where there is one. */
  readonly signer: () => Promise<Signer>;
  /** It lets nothing be spent any more, and why; null: it does again. Told when it changes. */
  readonly onStanding?: (why: string | null) => void;
}

/** How often a step is tried over what another gateway has written meanwhile. */
const TRIES_MAX = 64;
const PAUSE_MS_MAX = 50;
const never = new AbortController().signal;
/** Steps of this gateway that wait for each other. */
const WAITING_MAX = 5_000;
const NO_SWITCH: SpendSwitch = { stopped: null };
const NO_SUMS: Sums = { spent: 0, reserved: 0 };

/**
 * The ledger over a store: loads, asks `stepLedger`, and writes over what it loaded.
 *
 * Invariants:
 *   B1. A store that can't be used, or that is not the one that this gateway knew, refuses every reservation and every beginning.
 *   B2. The steps of one gateway go one after the other, so that they only ever meet those of others.
 *   B3. The switch is read in the very step that a call begins by.
 *   B4. An approval is written signed, and one whose signature is wrong is none.
 */
export class Ledger {
  readonly #deps: LedgerDeps;
  #tail: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #refuses: string | null = null;

  constructor(deps: LedgerDeps) {
    this.#deps = deps;
  }

  get kind(): DocStore["kind"] {
    return this.#deps.store.kind;
  }

  reserve(ask: ReserveAsk): Promise<LedgerOutcome> {
    return this.#step(ask, { ...ask, kind: "reserve" });
  }

  /** What `reserve` would say now; nothing changes. */
  async peek(ask: ReserveAsk): Promise<Lack | null> {
    try {
      const { view, now } = await this.#load(ask);
      const step = stepLedger(view, { ...ask, kind: "reserve" }, now);
      return step.kind === "refused" ? step.lack : null;
    } catch (error) {
      this.#stands(messageOf(error));
      return "ledger_away";
    }
  }

  /** Why nothing is spent from a ledger that can be read: it is not the one that this gateway knew. Null: it is. */
  async whyRefused(): Promise<string | null> {
    const { docs } = await this.#orAway(() => this.#deps.store.load(["meta"]));
    try {
      await this.#checkLife(docs[0] ?? null);
      return null;
    } catch (error) {
      return messageOf(error);
    }
  }

  /** Done: the call may be made, once. */
  begin(name: ReservationName, approval: ApprovedThing | null = null): Promise<LedgerOutcome> {
    return this.#step(name, { kind: "begin", approval });
  }

  settle(name: ReservationName, chargedMicros: number | null): Promise<LedgerOutcome> {
    return this.#step(name, { kind: "settle", chargedMicros });
  }

  giveBack(name: ReservationName, why: string, refusal?: Refusal): Promise<LedgerOutcome> {
    return this.#step(name, { kind: "void", why, expired: false, refusal });
  }

  outcomeUnknown(name: ReservationName, why: string): Promise<LedgerOutcome> {
    return this.#step(name, { kind: "unknown", why });
  }

  /** Rejects with OVERFLOW_LEDGER_UNAVAILABLE, as all that follow. */
  async find(name: ReservationName): Promise<Reservation | null> {
    return (await this.#orAway(() => this.#load(name))).view.reservation;
  }

  reservations(): Promise<readonly Reservation[]> {
    return this.#orAway(async () => (await this.#deps.store.open("res")).map(([, text]) => parse<Reservation>(text)));
  }

  approvals(): Promise<readonly Approval[]> {
    return this.#orAway(async () => {
      const texts = await this.#deps.store.open("approval");
      return Promise.all(texts.map(([, text]) => this.#readApproval(text)));
    });
  }

  /** One for each job and tier; a new one takes the place of one that was not used. Null: it is in use, or was used. */
  approve(
    asked: Omit<Approval, "state" | "reservation" | "at" | "expiresAt">,
    ttlMs: number,
  ): Promise<Approval | null> {
    const name = approvalName(asked.tier, asked.subject);
    return this.#changeApproval(name, (known, now) => {
      if (known?.state === "held" || known?.state === "used") return null;
      return { ...asked, at: now, expiresAt: now + ttlMs, state: "open", reservation: null };
    });
  }

  /** Null: there is none, or it was used. One that is held counts no more when its call is to begin. */
  revoke(tier: string, subject: string): Promise<Approval | null> {
    return this.#changeApproval(approvalName(tier, subject), (known) =>
      known === null || known.state === "used" ? null : { ...known, state: "revoked" },
    );
  }

  async spendSwitch(): Promise<SpendSwitch> {
    const { docs } = await this.#orAway(() => this.#deps.store.load(["switch"]));
    return switchOf(docs[0]);
  }

  async setSwitch(stopped: { readonly by: string; readonly why: string } | null): Promise<SpendSwitch> {
    const next = await this.#change<SpendSwitch>("switch", (_known, now) => ({
      stopped: stopped === null ? null : { ...stopped, at: now },
    }));
    return next ?? NO_SWITCH;
  }

  /** False: there is no account of this name, or it was not halted. */
  async resume(tier: string): Promise<boolean> {
    const changed = await this.#change<Account>(`account/${tier}`, (known) =>
      known === null || known.halted === null ? null : { ...known, halted: null },
    );
    return changed !== null;
  }

  async spend(tiers: readonly Pick<ReserveAsk, "tier" | "setup">[]): Promise<readonly TierSpend[]> {
    const { docs, now } = await this.#orAway(() => this.#deps.store.load(tiers.map(({ tier }) => `account/${tier}`)));
    const { day, month } = periodOf(now);
    return tiers.map(({ tier, setup }, index) => {
      const account = parseOrNull<Account>(docs[index]);
      const today = account?.days[day] ?? NO_SUMS;
      const thisMonth = account?.months[month] ?? NO_SUMS;
      return {
        tier,
        currency: account?.currency ?? null,
        day,
        month,
        today,
        thisMonth,
        halted: account === null ? null : haltNow(account, setup, now),
      };
    });
  }

  /** The ledger that is there now is taken for the right one. */
  async acceptEmptied(): Promise<string> {
    const { docs } = await this.#orAway(() => this.#deps.store.load(["meta"]));
    const [doc] = docs;
    const epoch = typeof doc === "string" ? doc : await this.#orAway(() => this.#found());
    this.#deps.memory.write(epoch);
    return epoch;
  }

  /** Gives back what was reserved and never began, and forgets approvals whose time is over. */
  async sweep(): Promise<void> {
    const { now } = await this.#orAway(() => this.#deps.store.load([]));
    for (const reservation of await this.reservations())
      if (reservation.state === "reserved" && reservation.expiresAt <= now)
        await this.#step(reservation, { kind: "void", why: "it was not used in time", expired: true });
    for (const { tier, subject, state, expiresAt } of await this.approvals())
      if (expiresAt <= now && state !== "held") await this.#closeApproval(tier, subject);
  }

  async close(): Promise<void> {
    await this.#deps.store.close();
  }

  async #closeApproval(tier: string, subject: string): Promise<void> {
    const name = approvalName(tier, subject);
    await this.#inTurn(async () => {
      const { docs, now } = await this.#deps.store.load([name]);
      const doc = docs[0] ?? null;
      const known = doc === null ? null : await this.#readApproval(doc);
      if (doc === null || known === null || known.state === "held" || known.expiresAt > now) return;
      await this.#deps.store.commit({ from: [[name, doc]], writes: [{ name, text: doc, open: false }] });
    });
  }

  async #step(name: ReservationName, event: LedgerEvent): Promise<LedgerOutcome> {
    try {
      return await this.#inTurn(async () => {
        for (let tries = 1; tries <= TRIES_MAX; tries += 1) {
          const { view, from, now } = await this.#load(name);
          const step = stepLedger(view, event, now);
          if (step.kind === "refused") return { ...step, why: "" };
          if (step.kind === "same") return { kind: "done", view };
          const writes = await this.#writesOf(view, step.view, name);
          const outcome = await this.#deps.store.commit({ from, writes });
          if (outcome === "done") {
            if (event.kind === "settle" && step.view.reservation !== null)
              this.#deps.onSettled?.(step.view.reservation);
            return { kind: "done", view: step.view };
          }
          if (outcome === "full") return away("as many reservations are open as may be");
          await this.#afterConflict(tries);
        }
        return away("other gateways write to it without a pause");
      });
    } catch (error) {
      this.#stands(messageOf(error));
      return away(messageOf(error));
    }
  }

  /** Of several gateways that go on in step one could lose each time: whoever has lost twice comes back at a time of its own. */
  async #afterConflict(tries: number): Promise<void> {
    if (tries === 1) return;
    const { clock, random } = this.#deps;
    await clock.sleep(random.next() * Math.min(PAUSE_MS_MAX, 2 ** tries), never);
  }

  #stands(why: string | null): void {
    if (why === this.#refuses) return;
    this.#refuses = why;
    this.#deps.onStanding?.(why);
  }

  async #load(
    name: ReservationName,
  ): Promise<{ readonly view: LedgerView; readonly from: DocCommit["from"]; readonly now: number }> {
    const names = namesOf(name);
    const { docs, now } = await this.#deps.store.load(["meta", ...names]);
    const [meta = null, spend, account, reservation, approval] = docs;
    await this.#checkLife(meta);
    this.#stands(null);
    const view: LedgerView = {
      spend: switchOf(spend),
      account: parseOrNull(account),
      reservation: parseOrNull(reservation),
      approval: typeof approval === "string" ? await this.#readApproval(approval) : null,
    };
    return { view, now, from: names.map((each, index) => [each, docs[index + 1] ?? null] as const) };
  }

  /** B1. A ledger that was emptied knows nothing of what was spent. */
  async #checkLife(meta: Doc): Promise<void> {
    const known = this.#deps.memory.read();
    const epoch = meta ?? (known === null ? await this.#found() : null);
    if (known === null && epoch !== null) this.#deps.memory.write(epoch);
    else if (epoch !== known)
      throw new Error("it is not the ledger that this gateway knew: an operator must accept it (ctl spend accept)");
  }

  async #found(): Promise<string> {
    const epoch = this.#deps.newEpoch();
    await this.#deps.store.commit({ from: [["meta", null]], writes: [{ name: "meta", text: epoch, open: true }] });
    // Another gateway may have been first.
    const { docs } = await this.#deps.store.load(["meta"]);
    return docs[0] ?? epoch;
  }

  #changeApproval(
    name: string,
    next: (known: Approval | null, now: number) => Approval | null,
  ): Promise<Approval | null> {
    return this.#change(name, next, {
      read: (doc) => this.#readApproval(doc),
      write: async (approval) => writeApproval(approval, await this.#deps.signer()),
    });
  }

  async #readApproval(doc: string): Promise<Approval> {
    return readApproval(doc, await this.#deps.signer());
  }

  /** Null: it stays as it is. Waits for no step of others: the switch must not stand in a queue. */
  #change<T extends object>(
    name: string,
    next: (known: T | null, now: number) => T | null,
    form: Form<T> = PLAIN,
  ): Promise<T | null> {
    return this.#orAway(async () => {
      for (let tries = 1; tries <= TRIES_MAX; tries += 1) {
        const { docs, now } = await this.#deps.store.load([name]);
        const doc = docs[0] ?? null;
        const value = next(doc === null ? null : await form.read(doc), now);
        if (value === null) return null;
        const writes = [{ name, text: await form.write(value), open: true }];
        const outcome = await this.#deps.store.commit({ from: [[name, doc]], writes });
        if (outcome === "done") return value;
        if (outcome === "full") throw new Error("as many are open as may be");
        await this.#afterConflict(tries);
      }
      throw new Error("other gateways write to it without a pause");
    });
  }

  async #writesOf(before: LedgerView, after: LedgerView, name: ReservationName): Promise<DocWrite[]> {
    const [, account = "", reservation = "", approval = ""] = namesOf(name);
    const writes: DocWrite[] = [];
    if (after.account !== before.account)
      writes.push({ name: account, text: JSON.stringify(after.account), open: true });
    if (after.reservation !== null && after.reservation !== before.reservation) {
      const open = STAYS_OPEN.has(after.reservation.state);
      writes.push({ name: reservation, text: JSON.stringify(after.reservation), open });
    }
    if (after.approval !== null && after.approval !== before.approval) {
      const text = writeApproval(after.approval, await this.#deps.signer());
      writes.push({ name: approval, text, open: after.approval.state !== "used" });
    }
    return writes;
  }

  async #orAway<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (error) {
      throw new YardmasterError("OVERFLOW_LEDGER_UNAVAILABLE", `the ledger can't be used: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  async #inTurn<T>(act: () => Promise<T>): Promise<T> {
    if (this.#waiting >= WAITING_MAX) throw new Error("too many steps wait for it");
    this.#waiting += 1;
    const before = this.#tail;
    const turn = (async (): Promise<T> => {
      await before;
      return act();
    })();
    this.#tail = turn.catch(() => {}); // Whoever asked is told.
    try {
      return await turn;
    } finally {
      this.#waiting -= 1;
    }
  }
}

const away = (why: string): LedgerOutcome => ({ kind: "refused", lack: "ledger_away", why });
const approvalName = (tier: string, subject: string): string => `approval/${tier}/${subject}`;
const namesOf = ({ id, tier, subject }: ReservationName): readonly string[] => [
  "switch",
  `account/${tier}`,
  `res/${id}`,
  approvalName(tier, subject),
];

/** How a document is read and written. */
interface Form<T> {
  readonly read: (doc: string) => T | Promise<T>;
  readonly write: (value: T) => string | Promise<string>;
}

const parse = <T>(text: string): T => JSON.parse(text) as T;
const parseOrNull = <T>(doc: Doc | undefined): T | null => (typeof doc === "string" ? parse<T>(doc) : null);
const PLAIN = { read: parse as (doc: string) => never, write: (value: object): string => JSON.stringify(value) };
const switchOf = (doc: Doc | undefined): SpendSwitch => parseOrNull<SpendSwitch>(doc) ?? NO_SWITCH;

const STAYS_OPEN: ReadonlySet<string> = new Set(["reserved", "begun", "unknown"]);
