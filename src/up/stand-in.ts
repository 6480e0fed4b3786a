import { upstreamConfig } from "../contract/config-schema.ts";
import type { UpstreamSettings } from "../contract/gateway-config.ts";
import { resolveUpstream } from "../contract/resolve-config.ts";
import type { Clock } from "../kernel/clock.ts";

const SIM = { model: "sim-model", slots: 8, prefillTps: 5_000, decodeTps: 50, seed: 1 } as const;

export interface StandIn {
  readonly upstream: UpstreamSettings;
  readonly model: string;
  close(): Promise<void>;
}

/** A simulated engine in this process, where no agent can start one: agents need Linux. */
export async function startStandIn(clock: Clock): Promise<StandIn> {
  const { startSimEngine } = await import("../sim-engine/sim-engine.ts");
  const { model, ...timing } = SIM;
  const engine = await startSimEngine({ models: [model], dialect: "vllm", ...timing, clock });
  const endpoints = [{ url: engine.url }];
  const file = upstreamConfig.parse({ id: "demo", engine: "vllm", models: [model], slots: SIM.slots, endpoints });
  return { upstream: resolveUpstream(file, {}), model, close: () => engine.close() };
}
