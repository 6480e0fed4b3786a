import { MICROS, microsDown } from "./money.ts";
import type { OverflowFile, TierFile } from "./overflow-schema.ts";
import type { OverflowPolicy, SignalSettings, Tier } from "./overflow-settings.ts";
import type { Env } from "./env.ts";
import { resolveProvider } from "./resolve-provider.ts";

const usual = { pendingMin: 1, busyPercent: 95 } as const;

/** The sections are taken to be checked. */
export const resolveOverflow = (sections: readonly OverflowFile[], env: Env): readonly OverflowPolicy[] =>
  sections.map((section) => ({
    upstream: section.upstream,
    signals: section.signals.map(resolveSignal),
    onUnreachable: section.on_unreachable,
    signalTimeoutMs: section.signal_timeout_ms,
    signalMemoryMs: section.signal_memory_ms,
    holdMs: Math.round(section.hold_s * 1000),
    tiers: section.tiers.map((tier) => resolveTier(tier, env)),
  }));

function resolveSignal(file: OverflowFile["signals"][number]): SignalSettings {
  const { kind, url = "" } = file;
  switch (kind) {
    case "comfyui_vram":
      return { kind, url, busyPercent: file.busy_pct ?? usual.busyPercent };
    case "gpu_util_with_backlog":
      return {
        kind,
        gpu: file.gpu ?? "",
        url: file.queue_url ?? "",
        busyPercent: file.busy_pct ?? usual.busyPercent,
        pendingMin: file.pending_min ?? usual.pendingMin,
      };
    case "semaphore":
      return { kind, url, busyField: file.busy_field ?? "busy" };
    case "queue_depth":
      return { kind, min: file.min ?? 1 };
    case "queue_time_p90_s":
      return { kind, above: file.above ?? 0 };
    default:
      return kind satisfies never;
  }
}

function resolveTier(file: TierFile, env: Env): Tier {
  const provider = resolveProvider(file, env);
  return {
    id: file.id,
    approved: file.approved,
    approval: file.approval,
    twoPerson: file.two_person,
    budget: { dayMicros: capOf(file.budget.per_day), monthMicros: capOf(file.budget.per_month) },
    priceMicrosMax: capOf(file.max_price),
    inFlightMax: file.max_in_flight,
    keyPresent:
      (file.key_env === undefined || provider.key !== null) &&
      (file.secret_key_env === undefined || provider.signingKey !== null),
    provider,
  };
}

const capOf = (amount: number | undefined): number | null =>
  amount === undefined ? null : microsDown(amount * MICROS);
