import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { Random } from "../../kernel/random.ts";
import type { CallDeps } from "../calls/call-deps.ts";
import type { ReplyStores } from "./reply-stores.ts";

export interface ReplayDeps extends CallDeps {
  readonly random: Random;
  readonly stores: ReplyStores;
  readonly config: () => GatewayConfig;
}
