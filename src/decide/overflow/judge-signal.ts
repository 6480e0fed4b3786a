import type { SignalKind, SignalSettings } from "../../contract/overflow-settings.ts";
import { assertNever } from "../../kernel/assert-never.ts";

/** What was read for one signal. Pages are parsed JSON; anything may be in them. */
export interface SignalInput {
  readonly page: { readonly kind: "page"; readonly json: unknown } | { readonly kind: "failed"; readonly why: string };
  /** 0 to 100; null: nobody measured it, or too long ago. */
  readonly utilization: number | null;
  /** Requests and jobs that wait for the upstream; null: unknown. */
  readonly depth: number | null;
  /** Seconds; null: nothing waited of late. */
  readonly queueP90S: number | null;
}

export interface SignalReading {
  readonly kind: SignalKind;
  /** Broken is not busy, whatever the reason. */
  readonly state: "busy" | "not_busy" | "broken";
  /** Whether its page answered; null for a signal that asks nobody. */
  readonly reachable: boolean | null;
  readonly value: number | null;
  readonly threshold: number | null;
  /** In words and numbers. */
  readonly reason: string;
  /** Whether it speaks of the card itself. A card that is busy takes no further job; a long queue is worked off. */
  readonly ofCard: boolean;
}

const WHY_CHARS_MAX = 200;
const ITEMS_MAX = 100_000;
const OF_CARD = { ofCard: true, reachable: true } as const;
const OF_QUEUE = { ofCard: false, reachable: null } as const;

export function judgeSignal(settings: SignalSettings, input: SignalInput): SignalReading {
  switch (settings.kind) {
    case "comfyui_vram":
      return judgeVram(settings, input);
    case "gpu_util_with_backlog":
      return judgeBacklog(settings, input);
    case "semaphore":
      return judgeSemaphore(settings, input);
    case "queue_depth": {
      const { kind, min: threshold } = settings;
      const { depth: value } = input;
      if (value === null) return broken(kind, threshold, null, "the length of the queue is not known");
      const busy = value >= threshold;
      return told(OF_QUEUE, kind, busy, {
        value,
        threshold,
        reason: `queue ${value} ${busy ? "≥" : "<"} ${threshold}`,
      });
    }
    case "queue_time_p90_s": {
      const { kind, above: threshold } = settings;
      const value = input.queueP90S ?? 0;
      const busy = value > threshold;
      const reason = `queue time p90 ${value.toFixed(1)} s ${busy ? ">" : "≤"} ${threshold.toFixed(1)} s`;
      return told(OF_QUEUE, kind, busy, { value, threshold, reason });
    }
    default:
      return assertNever(settings, "signal");
  }
}

/** The first device is the one that ComfyUI works on; newer builds list the others behind it. */
function judgeVram(settings: Extract<SignalSettings, { kind: "comfyui_vram" }>, { page }: SignalInput): SignalReading {
  const { kind, busyPercent } = settings;
  if (page.kind === "failed") return broken(kind, busyPercent, false, page.why);
  const device = memberOf(memberOf(page.json, "devices"), 0);
  const total = memberOf(device, "vram_total");
  const free = memberOf(device, "vram_free");
  if (!isCount(total) || !isCount(free) || total === 0 || free > total)
    return broken(kind, busyPercent, true, "devices[0].vram_total and vram_free are no sizes");
  const used = Math.round((1 - free / total) * 100_000) / 1_000;
  const busy = used >= busyPercent;
  const reason = `vram ${percent(used)} ${busy ? "≥" : "<"} ${percent(busyPercent)}`;
  return told(OF_CARD, kind, busy, { value: used, threshold: busyPercent, reason });
}

function judgeBacklog(
  settings: Extract<SignalSettings, { kind: "gpu_util_with_backlog" }>,
  { page, utilization }: SignalInput,
): SignalReading {
  const { kind, busyPercent, pendingMin } = settings;
  if (page.kind === "failed") return broken(kind, busyPercent, false, page.why);
  const pending = memberOf(page.json, "queue_pending");
  if (!Array.isArray(pending) || pending.length > ITEMS_MAX)
    return broken(kind, busyPercent, true, "queue_pending is no list");
  if (utilization === null || !(utilization >= 0 && utilization <= 100))
    return broken(kind, busyPercent, true, "the card's utilization is not known");
  const hot = utilization >= busyPercent;
  const backlog = pending.length >= pendingMin;
  const reason = `util ${percent(utilization)} ${hot ? "≥" : "<"} ${percent(busyPercent)} with pending ${pending.length} ${backlog ? "≥" : "<"} ${pendingMin}`;
  return told(OF_CARD, kind, hot && backlog, { value: utilization, threshold: busyPercent, reason });
}

/** True or false, or how many jobs the card holds. */
function judgeSemaphore(
  settings: Extract<SignalSettings, { kind: "semaphore" }>,
  { page }: SignalInput,
): SignalReading {
  const { kind, busyField } = settings;
  if (page.kind === "failed") return broken(kind, 1, false, page.why);
  const field = busyField.split(".").reduce<unknown>((value, key) => memberOf(value, key), page.json);
  if (typeof field !== "boolean" && !(isCount(field) && Number.isInteger(field)))
    return broken(kind, 1, true, `${busyField} is neither true or false nor a number of jobs`);
  const value = Number(field);
  const reason = value === 0 ? `${busyField}: the card holds no job` : `${busyField}: the card holds ${value} ≥ 1 job`;
  return told(OF_CARD, kind, value > 0, { value, threshold: 1, reason });
}

const told = (
  of: Pick<SignalReading, "ofCard" | "reachable">,
  kind: SignalKind,
  busy: boolean,
  said: Pick<SignalReading, "value" | "threshold" | "reason">,
): SignalReading => ({ kind, state: busy ? "busy" : "not_busy", ...said, ...of });

const broken = (kind: SignalKind, threshold: number | null, reachable: boolean | null, why: string): SignalReading => ({
  kind,
  state: "broken",
  reachable,
  value: null,
  threshold,
  reason: why.slice(0, WHY_CHARS_MAX),
  ofCard: false,
});

const percent = (value: number): string => `${value.toFixed(1)}%`;

const isCount = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value) && value >= 0;

const memberOf = (value: unknown, key: string | number): unknown =>
  typeof value === "object" && value !== null && Object.hasOwn(value, key)
    ? (value as Record<string | number, unknown>)[key]
    : undefined;
