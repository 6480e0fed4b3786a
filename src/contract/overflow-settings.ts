import type { ProviderSettings } from "./provider-settings.ts";

/** When an upstream's card is busy, and who may take its work then. A snapshot like the rest of the configuration. */

interface SignalPage {
  readonly url: string;
}

export type SignalSettings =
  | (SignalPage & { readonly kind: "comfyui_vram"; readonly busyPercent: number })
  | {
      readonly kind: "gpu_util_with_backlog";
      readonly gpu: string;
      readonly busyPercent: number;
      /** ComfyUI's queue. */
      readonly url: string;
      readonly pendingMin: number;
    }
  | (SignalPage & { readonly kind: "semaphore"; readonly busyField: string })
  | { readonly kind: "queue_depth"; readonly min: number }
  | { readonly kind: "queue_time_p90_s"; readonly above: number };

export type SignalKind = SignalSettings["kind"];

/** Whole millionths of the currency; null: no limit. */
export interface TierBudget {
  readonly dayMicros: number | null;
  readonly monthMicros: number | null;
}

export interface TierRules {
  /** Unique in the file: the name of its account. */
  readonly id: string;
  readonly approved: boolean;
  readonly approval: "tier" | "per_job";
  /** An approval by who submitted the job does not count. */
  readonly twoPerson: boolean;
  readonly budget: TierBudget;
  /** A dearer job is not sent; null: the budget and approvals alone say. */
  readonly priceMicrosMax: number | null;
  readonly inFlightMax: number;
}

export interface OverflowRules {
  readonly upstream: string;
  readonly signals: readonly SignalSettings[];
  readonly onUnreachable: "overflow" | "stay";
  /** How long a signal's page is waited for. */
  readonly signalTimeoutMs: number;
  /** How long a reading serves for others. */
  readonly signalMemoryMs: number;
  /** How long a job that no tier may take is kept off a loaded card. */
  readonly holdMs: number;
}

export interface Tier extends TierRules {
  /** The environment has every key that the tier names. */
  readonly keyPresent: boolean;
  readonly provider: ProviderSettings;
}

export interface OverflowPolicy extends OverflowRules {
  /** In the order in which they are asked. */
  readonly tiers: readonly Tier[];
}
