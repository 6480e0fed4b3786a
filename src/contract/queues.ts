import { z } from "zod";

/** What `GET /v1/queues` answers: the upstreams of all gateways that tell, as boards show them. */
const count = z.number();
const byClass = z.object({ interactive: count, system: count, batch: count });
const percentiles = z.object({ p50: count.nullable(), p95: count.nullable(), count });

export const queueView = z.object({
  id: z.string(),
  models: z.array(z.string()),
  engine: z.string(),
  catalog_model: z.string().nullable(),
  gateways: z.array(z.string()),
  slots: count,
  batch_max: count,
  in_use: byClass,
  lingering: count,
  waiting: byClass,
  oldest_wait_ms: count.nullable(),
  queue_ms: percentiles,
  first_byte_ms: percentiles,
  per_second: count.nullable(),
  away: z.string().nullable(),
  endpoints: z.object({ all: count, well: count }),
  sharing: z.string().nullable(),
});

export const queuesView = z.object({ upstreams: z.array(queueView) });
export type QueueAnswer = z.output<typeof queueView>;
export type QueuesAnswer = z.output<typeof queuesView>;
