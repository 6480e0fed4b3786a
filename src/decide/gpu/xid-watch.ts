import type { MonoMs } from "../../kernel/clock.ts";
import type { GpuPolicy } from "./gpu-policy.ts";
import { SILENT, WELL, type Sign } from "./sign.ts";
import { XidCountWatch, type XidCounts } from "./xid-counts.ts";
import { classOfXid, REPEAT_MS, type XidClass } from "./xid-policy.ts";

/** The forms in which exporters tell of codes. Null: not told in this form. */
export interface XidsTold {
  /** Codes that the gauge holds. */
  readonly xids: readonly number[] | null;
  readonly xidsOfWindow: XidCounts | null;
  readonly xidsInTotal: XidCounts | null;
}

const FORMS = ["gauge", "window", "total"] as const;
type Form = (typeof FORMS)[number];

/** Of one code within `REPEAT_MS`. */
const COMINGS_MAX = 8;
/** An exporter reads its forms up to 30 s apart, and gives each reading out for as long; a page that is asked for seldom tells them later. */
const SAME_INCIDENT_MS = 120_000;
const SAME_INCIDENT_LOOKS = 2;

/** An incident that one form told and another is still to tell. */
interface Due {
  readonly at: MonoMs;
  readonly look: number;
}

/**
 * Makes events of what an exporter tells of one card's XIDs: a gauge, which holds the last code until the driver or the exporter starts
 * anew, and counts.
 *
 * Invariants:
 *   X1. A code is an incident when it comes, not while it stands; what stood at the first look has not come.
 *   X2. The gauge's going over to a harmless code shows nothing about the card.
 *   X3. A series that is missing for less than `clearAfterMs` does not make its code come again.
 *   X4. A code that is merely no longer told shows nothing either: an exporter that starts anew tells none, and the card has still not
 *       been reset. Nor does a count that has fallen: its minutes are over.
 *   X5. An incident that several forms tell is one, though they tell it on different pages.
 */
export class XidWatch {
  /** Null before the first look. */
  #standing: Set<number> | null = null;
  /** Since when the gauge has not been told. */
  #absentSince: MonoMs | null = null;
  readonly #window = new XidCountWatch("window");
  readonly #total = new XidCountWatch("total");
  #looks = 0;
  readonly #due = new Map<string, Due[]>();
  readonly #comings = new Map<number, MonoMs[]>();
  #fault: { readonly code: number; readonly class: XidClass } | null = null;

  /** The card is good again: what stands is old. */
  clear(): void {
    this.#fault = null;
    this.#window.clear();
    this.#total.clear();
  }

  look(told: XidsTold, now: MonoMs, policy: GpuPolicy): Sign {
    const { clearAfterMs, xidOverrides } = policy;
    this.#looks += 1;
    let fell = false;
    const tell = (form: Form, code: number, times: number): void => {
      for (let time = 0; time < Math.min(times, COMINGS_MAX); time += 1)
        if (this.#isNew(form, code, now)) fell = this.#come(code, now, xidOverrides) || fell;
    };
    for (const code of this.#comeInGauge(told.xids, now, clearAfterMs)) tell("gauge", code, 1);
    for (const [code, times] of this.#window.look(told.xidsOfWindow, now, clearAfterMs)) tell("window", code, times);
    for (const [code, times] of this.#total.look(told.xidsInTotal, now, clearAfterMs)) tell("total", code, times);
    if (this.#fault === null) return WELL;
    const { code } = this.#fault;
    const stands = (told.xids?.length ?? 0) > 0 || (told.xidsOfWindow?.[code] ?? 0) > 0;
    if (fell || stands) return { kind: "bad", detail: `XID ${code}` };
    return told.xids === null ? SILENT : WELL;
  }

  #comeInGauge(xids: readonly number[] | null, now: MonoMs, clearAfterMs: number): readonly number[] {
    this.#standing ??= new Set(xids);
    if (xids === null) {
      this.#absentSince ??= now;
      if (now - this.#absentSince >= clearAfterMs) this.#standing.clear();
      return [];
    }
    this.#absentSince = null;
    const came = xids.filter((code) => this.#standing?.has(code) === false);
    this.#standing = new Set(xids);
    return came;
  }

  /** False where another form told this incident already. */
  #isNew(form: Form, code: number, now: MonoMs): boolean {
    const isDue = ({ at, look }: Due): boolean =>
      now - at <= SAME_INCIDENT_MS || this.#looks - look <= SAME_INCIDENT_LOOKS;
    const due = (this.#due.get(`${form} ${code}`) ?? []).filter(isDue);
    this.#due.set(`${form} ${code}`, due.slice(1));
    if (due.length > 0) return false;
    for (const other of FORMS) {
      if (other === form) continue;
      const waiting = (this.#due.get(`${other} ${code}`) ?? []).filter(isDue);
      this.#due.set(`${other} ${code}`, [...waiting, { at: now, look: this.#looks }].slice(-COMINGS_MAX));
    }
    return true;
  }

  /** Whether the card is to be reset, or unusable, by it. */
  #come(code: number, now: MonoMs, overrides: ReadonlyMap<number, XidClass>): boolean {
    const times = [...(this.#comings.get(code) ?? []), now].filter((at) => now - at < REPEAT_MS).slice(-COMINGS_MAX);
    this.#comings.set(code, times);
    const xidClass = classOfXid(code, times.length, overrides);
    if (xidClass !== "drain" && xidClass !== "isolate") return false;
    if (this.#fault?.class !== "isolate") this.#fault = { code, class: xidClass };
    return true;
  }
}
