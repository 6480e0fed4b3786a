import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { TimerWheel } from "../../kernel/timer-wheel.ts";
import { NetUpstreamClient } from "./net-client.ts";
import type { UpstreamClient } from "./port.ts";

/** The client towards the engines that the configuration names. */
export async function openClient(config: GatewayConfig, clock: Clock, wheel: TimerWheel): Promise<UpstreamClient> {
  if (config.upstreamClient === "net") return new NetUpstreamClient({ clock, wheel });
  const { UndiciUpstreamClient } = await import("./undici-client.ts");
  return new UndiciUpstreamClient({ clock, wheel });
}
