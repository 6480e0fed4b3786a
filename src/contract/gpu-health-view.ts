import { z } from "zod";

/** What a gateway tells of the cards that it watches, at `/health` and `/admin/gpus`. Null: nobody told it. */

const text = z.string().nullable();
const number = z.number().nullable();

const sourceView = z.object({
  name: z.string(),
  state: z.string(),
  why: text,
  hosts: z.array(z.string()),
  told_ms_ago: number,
});

const cardView = z.object({
  gpu: z.string(),
  host: z.string(),
  index: number,
  source: z.string(),
  /** "good", "faulted" or "unknown". */
  state: z.string(),
  why: text,
  saturated: z.boolean(),
  /** 0 to 1. */
  utilization: number,
  memory_used_mib: number,
  memory_free_mib: number,
  temperature_c: number,
  power_w: number,
  throttle_reasons: number,
  /** What the gauge holds. */
  xids: z.array(z.number()).nullable(),
  /** By code, how often the exporter counted it: within its last minutes, or since it began where it tells only that. */
  xid_counts: z.record(z.string(), z.number()).nullable(),
  fields_lost: z.array(z.string()),
  age_ms: number,
  /** Endpoints that lie on it. */
  endpoints: z.array(z.string()),
});

const upstreamView = z.object({
  id: z.string(),
  saturated: z.boolean(),
  guarded: z.array(z.string()),
  /** Named under an endpoint, and never told of by any source: the endpoint is not guarded by them. */
  not_known: z.array(z.string()),
  /** What `gpu_ids` come to; null where there are none. */
  gpu_ids: z.object({ host: text, ties: z.array(z.string()), leaves: z.array(z.string()) }).nullable(),
});

export const gpuHealthView = z.object({
  dry_run: z.boolean(),
  couple_faults: z.boolean(),
  couple_xid: z.boolean(),
  shed_batch: z.boolean(),
  sources: z.array(sourceView),
  gpus: z.array(cardView),
  upstreams: z.array(upstreamView),
});
export type GpuHealthView = z.output<typeof gpuHealthView>;

export const gpuClearBody = z.strictObject({ gpu: z.string().min(1).max(320) });
export const gpuClearView = z.object({ gpu: z.string(), cleared: z.number() });
