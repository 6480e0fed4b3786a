import type { Dialect } from "../../contract/error-body.ts";
import type { EpochMs, MonoMs } from "../../kernel/clock.ts";
import type { RequestKey } from "../../access/request-key.ts";
import type { ClientReply, ClientRequest } from "./client-port.ts";
import type { KeyHold } from "../limits/key-limiter.ts";
import type { ShedSite } from "../gpu/gpu-shedder.ts";
import type { Route } from "./routes.ts";

/** What is known of a request once its head was read and its key checked. */
export interface RequestContext {
  readonly req: ClientRequest;
  readonly res: ClientReply;
  readonly requestId: string;
  readonly route: Route;
  /** Canonical path without the query. */
  readonly path: string;
  /** With the question mark, or empty. */
  readonly query: string;
  /** What follows the route's prefix, for routes that have one. */
  readonly rest: string;
  readonly key: RequestKey;
  readonly dialect: Dialect;
  readonly arrivedAt: MonoMs;
  readonly arrivedWall: EpochMs;
  /** What the request holds of its key's limits; whoever records its end gives it back. Absent where the key has none. */
  readonly hold?: KeyHold;
  /** Set for a job's call, not a client's: as what it is asked about saturated GPUs. */
  readonly jobSite?: ShedSite;
}
