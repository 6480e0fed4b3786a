import type { SimEngine } from "../../../src/sim-engine/sim-engine.ts";
import type { VirtualClock } from "../../../src/testing/virtual-clock.ts";
import { anEngine } from "./an-engine.ts";
import type { CallAnswer, LiveCall } from "./calls.ts";
import type { ShownEndpoint } from "./health.ts";
import { startTestGateway, type TestGateway } from "./test-gateway.ts";
import { passTime, stopInVirtualTime, whileTimePasses } from "./virtual-time.ts";

/** Of all upstreams. */
export async function shownEndpoints(gateway: Pick<TestGateway, "health">): Promise<readonly ShownEndpoint[]> {
  const { upstreams } = await gateway.health();
  return upstreams.flatMap(({ endpoints }) => endpoints);
}

/** A gateway and simulated engines on one virtual clock. */
export interface VirtualWorld {
  readonly gateway: TestGateway;
  readonly clock: VirtualClock;
  /** As `/health` shows it. */
  endpoint(url: string): Promise<ShownEndpoint>;
  /** The answers, while time passes. */
  answers(calls: readonly LiveCall[]): Promise<readonly CallAnswer[]>;
}

export async function withVirtualWorld(
  clock: VirtualClock,
  upstreams: readonly Record<string, unknown>[],
  run: (world: VirtualWorld) => Promise<void>,
): Promise<void> {
  const gateway = await startTestGateway({ clock, upstreams });
  try {
    await passTime(clock, 1_000);
    await run({
      gateway,
      clock,
      endpoint: async (url) => {
        const found = (await shownEndpoints(gateway)).find((endpoint) => endpoint.url === url);
        if (found === undefined) throw new Error(`no endpoint ${url} in /health`);
        return found;
      },
      answers: (calls) => whileTimePasses(clock, Promise.all(calls.map((one) => one.answer))),
    });
  } finally {
    await stopInVirtualTime(clock, gateway);
  }
}

export const virtualSim = (clock: VirtualClock, seed: number, port?: number): Promise<SimEngine> =>
  anEngine({ seed, clock, ...(port === undefined ? {} : { port }) });

export const upstreamOf = (
  engine: string,
  urls: readonly string[],
  more: Record<string, unknown> = {},
): Record<string, unknown> => ({
  id: "u",
  models: ["m"],
  engine,
  slots: 16,
  endpoints: urls.map((url) => ({ url })),
  ...more,
});

/** A series of the endpoint's state, by its id in `/health`. */
export const stateSeries = (endpointId: string, state: string): string =>
  `yardmaster_endpoint_state{upstream="u",endpoint="${endpointId}",state="${state}"}`;
