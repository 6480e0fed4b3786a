import { monitorEventLoopDelay } from "node:perf_hooks";
import type { Clock } from "../kernel/clock.ts";
import type { CounterFamily, GaugeFamily } from "./registry.ts";

/** Ten samples a second: each one wakes the process, so finer ones would cost an idle gateway more than they tell. */
const RESOLUTION_MS = 100;
const NS = 1e9;

export interface ProcessFamilies {
  readonly processRss: GaugeFamily;
  readonly processHeap: GaugeFamily;
  readonly processCpu: CounterFamily;
  readonly uptime: GaugeFamily;
  readonly eventLoopDelay: GaugeFamily;
}

/** Fills the metrics of the process itself: memory, CPU, event loop delay, uptime. */
export function collectProcessMetrics(families: ProcessFamilies, clock: Clock): Disposable {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  const startedAt = clock.mono();
  families.processRss.collectWith((set) => set([], process.memoryUsage.rss()));
  families.processHeap.collectWith((set) => set([], process.memoryUsage().heapUsed));
  families.processCpu.collectWith((set) => {
    const { user, system } = process.cpuUsage();
    set(["user"], user / 1e6);
    set(["system"], system / 1e6);
  });
  families.uptime.collectWith((set) => set([], (clock.mono() - startedAt) / 1000));
  families.eventLoopDelay.collectWith((set) => {
    if (delay.count === 0) return;
    // The histogram holds the time between two samples; what is above the interval is the delay.
    const late = (ns: number): number => Math.max(0, ns / NS - RESOLUTION_MS / 1000);
    set(["p50"], late(delay.percentile(50)));
    set(["p99"], late(delay.percentile(99)));
    set(["max"], late(delay.max));
    delay.reset();
  });
  return { [Symbol.dispose]: () => delay.disable() };
}
