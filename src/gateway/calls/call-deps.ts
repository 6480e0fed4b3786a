import type { UsageMeter } from "../../coord/usage/usage-meter.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { BufferBudget } from "../buffer-budget.ts";
import type { GatewayMetrics } from "../metrics/gateway-metrics.ts";
import type { Tracer } from "../../trace/tracer.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { TimerWheel } from "../../kernel/timer-wheel.ts";

/** What every call needs of the process it runs in. */
export interface CallDeps {
  readonly clock: Clock;
  readonly wheel: TimerWheel;
  readonly log: Logger;
  readonly audit: AuditSink;
  readonly metrics: GatewayMetrics;
  readonly usage: UsageMeter;
  readonly tracer: Tracer;
  readonly budget: BufferBudget;
  readonly nextCallId: () => number;
  readonly endpointHeader: () => boolean;
}
