import type { GpuHealthView } from "../../../src/contract/gpu-health-view.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import type { TestGateway } from "./test-gateway.ts";

/** `gpu_health` at a hundredth of the usual times, so that a test sees minutes pass. */
export const fastGpuHealth = (more: Record<string, unknown>): Record<string, unknown> => ({
  poll_s: 0.05,
  staleness_s: 1,
  clear_after_s: 0.2,
  ...more,
});

const asOperator = (gateway: TestGateway): Record<string, string> => ({
  authorization: `Bearer ${gateway.keys.operator}`,
});

export async function gpusOf(gateway: TestGateway): Promise<GpuHealthView> {
  return (await (await fetch(`${gateway.url}/admin/gpus`, { headers: asOperator(gateway) })).json()) as GpuHealthView;
}

export const clearGpu = (gateway: TestGateway, gpu: unknown): Promise<Response> =>
  fetch(`${gateway.url}/admin/gpus/clear`, {
    method: "POST",
    headers: { ...asOperator(gateway), "content-type": "application/json" },
    body: JSON.stringify({ gpu }),
  });

/** Waits until what the gateway tells of its cards is accepted. */
export const untilGpus = (
  what: string,
  gateway: TestGateway,
  accept: (view: GpuHealthView) => boolean,
): Promise<GpuHealthView> => eventually(what, () => gpusOf(gateway), accept);

export const guardedOf = (view: GpuHealthView, upstream: string): readonly string[] =>
  view.upstreams.find(({ id }) => id === upstream)?.guarded ?? [];

/** "good", "faulted" or "unknown" by card, as the page names them. */
export const statesOf = (view: GpuHealthView): Record<string, string> =>
  Object.fromEntries(view.gpus.map(({ gpu, state }) => [gpu, state]));
