import { isJsonObject } from "../http/token-usage.ts";
import { NO_LOAD, type EngineAdapter, type EngineLoad } from "./adapter.ts";
import { generic } from "./generic.ts";
import { parseJsonObject } from "./readings.ts";

/**
 * A ComfyUI. It has one line for everybody and works on one prompt at a time; a prompt goes on when the connection that brought it
 * is gone.
 */
export const comfyUi: EngineAdapter = {
  ...generic,
  name: "comfyui",
  health: { path: "/system_stats", timeoutMs: 5_000, everyMs: 5_000 },
  readMemoryUse,
  metricsPath: "/prompt",
  readLoadPage,
  othersTakeSlots: false,
  stopsAbandoned: { streamed: false, nonStreamed: false },
  busyProbe: { path: "/prompt", read: readRemaining },
  modelsPath: null,
};

/** Prompts that wait or run, of everybody. */
function readRemaining(body: string): number | undefined {
  const info = parseJsonObject(body)?.["exec_info"];
  const remaining = isJsonObject(info) ? info["queue_remaining"] : undefined;
  return typeof remaining === "number" && Number.isSafeInteger(remaining) && remaining >= 0 ? remaining : undefined;
}

function readLoadPage(body: string): EngineLoad | undefined {
  const remaining = readRemaining(body);
  if (remaining === undefined) return undefined;
  const running = Math.min(1, remaining);
  return { ...NO_LOAD, running, waiting: remaining - running };
}

/** Of the first card, which is the primary one. What torch holds and does not use counts as free there. */
function readMemoryUse(body: string): number | undefined {
  const devices = parseJsonObject(body)?.["devices"];
  const first: unknown = Array.isArray(devices) ? devices[0] : undefined;
  if (!isJsonObject(first)) return undefined;
  const { vram_total: total, vram_free: free } = first;
  if (typeof total !== "number" || typeof free !== "number" || total <= 0 || free < 0 || free > total) return undefined;
  return 1 - free / total;
}
