import type { KeyRing } from "../../access/key-ring.ts";
import type { AuthSettings } from "../../contract/gateway-config.ts";
import type { Role } from "../../contract/roles.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { ControlStore } from "../store/control-store.ts";
import { GATEWAY_PREFIX } from "../store/gateway-credentials.ts";
import type { FeedPorts, GatewayCheck } from "./feed-server.ts";

/** The feed holds the keys of engines. */
const ADMITTED: readonly Role[] = ["gateway", "admin"];

const refused = (code: Extract<GatewayCheck, { kind: "refused" }>["code"], why: string): GatewayCheck => ({
  kind: "refused",
  code,
  why,
});

/** A gateway shows a credential that was made for it, or a key of a role that may have the feed. */
export const gatewayCheck =
  (ports: {
    readonly store: Pick<ControlStore, "checkGateway">;
    readonly keys: KeyRing;
    readonly auth: () => AuthSettings;
    readonly log: Logger;
  }): FeedPorts["check"] =>
  async (credential, peer) => {
    if (ports.auth().mode === "none") return { kind: "ok", name: null };
    if (credential === null) return refused("UNAUTHORIZED", "send `Authorization: Bearer`");
    if (credential.reveal().startsWith(GATEWAY_PREFIX)) {
      try {
        const name = await ports.store.checkGateway(credential);
        return name === undefined ? refused("UNAUTHORIZED", "the credential is not valid") : { kind: "ok", name };
      } catch (error) {
        ports.log.warn("gateway.not_checked", { why: messageOf(error) });
        return refused("STORE_UNAVAILABLE", "the store did not answer: try again");
      }
    }
    const check = ports.keys.check(credential.reveal(), peer);
    if (check.kind !== "ok") return refused("UNAUTHORIZED", "the key is not valid");
    if (ADMITTED.includes(check.key.role)) return { kind: "ok", name: null };
    return refused("FORBIDDEN", `a key with role ${check.key.role} may not have the feed`);
  };
