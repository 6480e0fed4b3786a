import { upstreamConfig } from "./config-schema.ts";
import type { UpstreamSettings } from "./gateway-config.ts";
import type { Tier } from "./overflow-settings.ts";
import { resolveUpstream } from "./resolve-config.ts";

/** More than any tier may have in flight, which is bounded elsewhere: nothing waits for a slot of a tier. */
const SLOTS = 10_000;

/** What chats to a tier with OpenAI's API go through: an upstream that no name leads to, asked once and never probed. */
export function tierUpstream({ id, provider }: Tier): UpstreamSettings {
  const file = upstreamConfig.parse({
    id,
    slots: SLOTS,
    external: true,
    health: "passive",
    usage: "inject",
    retry: { attempts: 0 },
    // A chat waits no longer for the begin of its answer than a job does for the whole of one.
    timeouts: { first_byte_s: provider.submitMs / 1000 },
    endpoints: [{ url: provider.baseUrl }],
  });
  const settings = resolveUpstream(file, {});
  const named = provider.model === null ? settings : { ...settings, engineModel: provider.model };
  return { ...named, engineKey: provider.key };
}
