import { NO_LIMITS } from "../contract/gateway-config.ts";
import { REQUEST_CLASSES } from "../contract/request-class.ts";
import type { AcceptedKey } from "./key-ring.ts";

/** What a request may do, by the key it came with. */
export type RequestKey = Pick<
  AcceptedKey,
  "id" | "role" | "classes" | "weight" | "limits" | "allowExternal" | "allowsModel"
>;

/** Everybody, where `auth.mode` is `none`: the address is then the only protection, which the configuration check enforces. */
export const ANONYMOUS: RequestKey = {
  id: "anonymous",
  role: "admin",
  classes: REQUEST_CLASSES,
  weight: 1,
  limits: NO_LIMITS,
  allowExternal: true,
  allowsModel: () => true,
};
