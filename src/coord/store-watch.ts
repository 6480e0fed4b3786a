import type { StoreView } from "../decide/coordination/book-view.ts";

/** What a gateway knows of the store as a whole, and hears of its changes. */
export interface StoreWatch {
  /** Of this process; unique among all that share. */
  readonly gateway: string;
  view(): StoreView;
  /** Why it is not up; empty when it is. */
  readonly reason: string;
  /** "up" and "down": steps are sent, or not. "reconnected": it may be another server now, or an emptied one. */
  onChange(listener: (change: "up" | "down" | "reconnected") => void): Disposable;
}
