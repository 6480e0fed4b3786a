import type { UpstreamSettings } from "../../contract/gateway-config.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import { analyzerClient } from "./azure/analyzer-client.ts";
import { CalledOff, type CalledOffPorts } from "./comfyui/called-off.ts";
import { comfyClient } from "./comfyui/comfy-client.ts";

/** What speaks to an upstream's engines. Those that take more than one request for a call have a client of their own. */
export class UpstreamClients {
  readonly #client: UpstreamClient;
  readonly #clock: Clock;
  readonly #calledOff: CalledOff;

  constructor(client: UpstreamClient, ports: CalledOffPorts) {
    this.#client = client;
    this.#clock = ports.clock;
    this.#calledOff = new CalledOff(ports);
  }

  of(settings: UpstreamSettings): UpstreamClient {
    const ports = { client: this.#client, clock: this.#clock, calledOff: this.#calledOff };
    return analyzerClient(settings, this.#client, this.#clock) ?? comfyClient(settings, ports) ?? this.#client;
  }

  stop(): void {
    this.#calledOff.stop();
  }
}
