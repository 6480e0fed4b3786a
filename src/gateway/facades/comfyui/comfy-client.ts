import type { UpstreamSettings } from "../../../contract/gateway-config.ts";
import { headerValue } from "../../calls/answer-headers.ts";
import { brokenOff } from "../azure/gather.ts";
import type {
  UpstreamClient,
  UpstreamExchange,
  UpstreamHandler,
  UpstreamRequest,
  UpstreamTarget,
} from "../../upstream/port.ts";
import { PromptExchange, type PromptPorts } from "./prompt-exchange.ts";
import { readCallName } from "./prompt-id.ts";

/** What speaks to the ComfyUIs of an upstream; null for one of another kind. */
export const comfyClient = (settings: UpstreamSettings, ports: PromptPorts): UpstreamClient | null =>
  settings.kind === "comfyui" ? new ComfyClient(settings, ports) : null;

const PROMPT_PATH = "/prompt";

/**
 * Makes one exchange of all that a workflow takes, so that admission, routing and limits see a job's call as any other: it holds its slot for as
 * long as ComfyUI is at work.
 */
class ComfyClient implements UpstreamClient {
  readonly #settings: UpstreamSettings;
  readonly #ports: PromptPorts;

  constructor(settings: UpstreamSettings, ports: PromptPorts) {
    this.#settings = settings;
    this.#ports = ports;
  }

  exchange(target: UpstreamTarget, request: UpstreamRequest, handler: UpstreamHandler): UpstreamExchange {
    const name = readCallName(headerValue(request.headers, "x-request-id") ?? "");
    const { path } = request;
    if (name === undefined || request.method !== "POST" || !path.endsWith(PROMPT_PATH)) return refusing(handler);
    const basePath = path.slice(0, -PROMPT_PATH.length);
    const { endpoints } = this.#settings;
    return new PromptExchange(this.#ports, { name, target, basePath, request, endpoints }, handler);
  }

  closeOrigin(origin: string): void {
    this.#ports.client.closeOrigin(origin);
  }

  close(): void {
    this.#ports.client.close();
  }

  counts(): { readonly open: number; readonly idle: number } {
    return this.#ports.client.counts();
  }
}

/** Workflows come as jobs alone, which is what lets their prompts be found again. */
function refusing(handler: UpstreamHandler): UpstreamExchange {
  let over = false;
  setImmediate(() => {
    if (!over) handler.onError(brokenOff("protocol", "only a job's workflow goes to ComfyUI"));
  });
  return { abort: () => (over = true), pause: () => {}, resume: () => {}, completeFraming: () => Buffer.alloc(0) };
}
