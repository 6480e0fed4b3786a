import { systemClock } from "../../../src/kernel/clock.ts";
import { startSimEngine, type SimEngine } from "../../../src/sim-engine/sim-engine.ts";

/** A simulated engine that serves the model `m` at once and has room; what the test cares about is given. */
export const anEngine = (change: Partial<Parameters<typeof startSimEngine>[0]> = {}): Promise<SimEngine> =>
  startSimEngine({
    models: ["m"],
    dialect: "vllm",
    slots: 64,
    prefillTps: 0,
    decodeTps: 0,
    seed: 1,
    clock: systemClock,
    ...change,
  });
