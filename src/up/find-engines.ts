import { ENGINES } from "../decide/engines/engines.ts";
import type { EngineName } from "../contract/gateway-config.ts";
import type { Clock } from "../kernel/clock.ts";
import { TimerWheel } from "../kernel/timer-wheel.ts";
import { NetUpstreamClient } from "../gateway/upstream/net-client.ts";
import { fetchText } from "../gateway/upstreams/fetch-text.ts";

export interface FoundEngine {
  readonly engine: EngineName;
  readonly url: string;
  readonly models: readonly string[];
}

const LOOK_MS = 300;
const HOST = "127.0.0.1";

/** Real engines on their usual loopback ports, told strictly by what they answer. All are asked at once; nothing is loaded. */
export async function findEngines(clock: Clock): Promise<readonly FoundEngine[]> {
  const client = new NetUpstreamClient({ clock, wheel: new TimerWheel(clock) });
  const looks = ENGINES.flatMap((adapter) =>
    (adapter.detect?.defaultPorts ?? []).map(async (port): Promise<FoundEngine | null> => {
      if (adapter.detect === null || adapter.modelsPath === null) return null;
      const target = {
        origin: `http://${HOST}:${port}`,
        protocol: "http:",
        hostname: HOST,
        port,
        connectTimeoutMs: LOOK_MS,
      } as const;
      const options = { headers: ["host", `${HOST}:${port}`, "accept", "*/*"], timeoutMs: LOOK_MS };
      const page = await fetchText(client, clock, target, adapter.detect.path, options);
      if (page.kind === "failed" || !adapter.detect.matches(page.status, page.body, headersOf(page.rawHeaders)))
        return null;
      const list =
        adapter.modelsPath === adapter.detect.path
          ? page
          : await fetchText(client, clock, target, adapter.modelsPath, options);
      const models = list.kind === "answer" ? (adapter.readModels(list.body) ?? []) : [];
      return models.length === 0 ? null : { engine: adapter.name, url: target.origin, models };
    }),
  );
  const found = (await Promise.all(looks)).filter((engine) => engine !== null);
  client.close();
  return found;
}

function headersOf(rawHeaders: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (let i = 0; i + 1 < rawHeaders.length; i += 2)
    headers[(rawHeaders[i] ?? "").toLowerCase()] = rawHeaders[i + 1] ?? "";
  return headers;
}
