import type { MonoMs } from "../../kernel/clock.ts";
import type { GpuPolicy } from "./gpu-policy.ts";
import { SILENT, WELL, type Sign } from "./sign.ts";
import { classOfXid, REPEAT_MS, type XidClass } from "./xid-policy.ts";

/** Of one code within `REPEAT_MS`. */
const COMINGS_MAX = 8;

/**
 * Makes events of the XID gauge of one card, which holds the last code until the driver or the exporter starts anew.
 *
 * Invariants:
 *   X1. A code is an incident when it comes, not while it stands; what stood at the first look has not come.
 *   X2. The gauge's going over to a harmless code shows nothing about the card.
 *   X3. A series that is missing for less than `clearAfterMs` does not make its code come again.
 *   X4. A code that is merely no longer told shows nothing either: an exporter that starts anew tells none, and the card has still not
 *       been reset.
 */
export class XidWatch {
  /** Null before the first look. */
  #standing: Set<number> | null = null;
  /** Since when the gauge has not been told. */
  #absentSince: MonoMs | null = null;
  readonly #comings = new Map<number, MonoMs[]>();
  #fault: { readonly code: number; readonly class: XidClass } | null = null;

  /** The card is good again: what stands is old. */
  clear(): void {
    this.#fault = null;
  }

  look(xids: readonly number[] | null, now: MonoMs, { clearAfterMs, xidOverrides }: GpuPolicy): Sign {
    this.#standing ??= new Set(xids);
    if (xids === null) {
      this.#absentSince ??= now;
      if (now - this.#absentSince >= clearAfterMs) this.#standing.clear();
      return this.#fault === null ? WELL : SILENT;
    }
    this.#absentSince = null;
    for (const code of xids) if (!this.#standing.has(code)) this.#come(code, now, xidOverrides);
    this.#standing = new Set(xids);
    if (this.#fault === null) return WELL;
    return xids.length === 0 ? WELL : { kind: "bad", detail: `XID ${this.#fault.code}` };
  }

  #come(code: number, now: MonoMs, overrides: ReadonlyMap<number, XidClass>): void {
    const times = [...(this.#comings.get(code) ?? []), now].filter((at) => now - at < REPEAT_MS).slice(-COMINGS_MAX);
    this.#comings.set(code, times);
    const xidClass = classOfXid(code, times.length, overrides);
    if (xidClass !== "drain" && xidClass !== "isolate") return;
    if (this.#fault?.class !== "isolate") this.#fault = { code, class: xidClass };
  }
}
