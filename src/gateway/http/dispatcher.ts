import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { Dialect } from "../../contract/error-body.ts";
import { checkRequestHeaders, saneRequestId } from "../../decide/http/header-rules.ts";
import { canonicalPath } from "../../decide/http/request-line.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { readCredential } from "../../access/credentials.ts";
import type { KeyRing } from "../../access/key-ring.ts";
import { ANONYMOUS, type RequestKey } from "../../access/request-key.ts";
import { headerValue } from "../calls/answer-headers.ts";
import type { GatewayMetrics } from "../metrics/gateway-metrics.ts";
import type { ClientReply, ClientRequest } from "./client-port.ts";
import { refuseAtEdge, type EdgeHandlers } from "./edge-port.ts";
import type { RequestContext } from "./request-context.ts";
import { dialectOf, matchRoute, mayBeAsked, type Route } from "./routes.ts";
import { sendError } from "./send-error.ts";

export interface DispatcherDeps {
  readonly clock: Clock;
  readonly keys: KeyRing;
  /** Some of them are not read in yet. */
  readonly keysAway: () => boolean;
  readonly metrics: GatewayMetrics;
  readonly config: () => GatewayConfig;
  readonly nextRequestId: () => string;
  readonly handle: (context: RequestContext, expectsContinue: boolean) => void;
}

type KeyOutcome =
  | { readonly kind: "ok"; readonly key: RequestKey }
  | { readonly kind: "refused"; readonly code: ErrorCode; readonly message: string; readonly retryAfterMs?: number };

/**
 * From a request's head to its handler. The order is fixed: framing, target, route, key, role. The path is computed once, and
 * the one that permission judged is the one that is used from there on.
 */
export class Dispatcher implements EdgeHandlers {
  readonly #deps: DispatcherDeps;

  constructor(deps: DispatcherDeps) {
    this.#deps = deps;
  }

  onRefused(code: ErrorCode): string {
    this.#deps.metrics.forUpstream(null).refused(code);
    return this.#deps.nextRequestId();
  }

  /** `vouched`: whom a control plane has let in, and in whose name it asks; no credential is looked at then. */
  onRequest(req: ClientRequest, res: ClientReply, expectsContinue: boolean, vouched?: RequestKey): void {
    const { clock } = this.#deps;
    const arrivedAt = clock.mono();
    const headers = checkRequestHeaders(req.rawHeaders, req.httpVersion);
    if (headers.kind === "bad") return refuseAtEdge(res, this.onRefused(headers.code), headers.code, headers.why);
    const requestId = saneRequestId(headerValue(req.rawHeaders, "x-request-id")) ?? this.#deps.nextRequestId();
    const target = canonicalPath(req.target);
    if (target.kind === "tooLong")
      return this.#refuseTarget(req, res, requestId, "URI_TOO_LONG", "the request target is longer than 8 KiB");
    if (target.kind === "bad") return this.#refuseTarget(req, res, requestId, "BAD_REQUEST", target.why);
    const path = withoutTrailingSlash(target.path);
    const match = matchRoute(req.method, path);
    if (match.kind !== "route") {
      const unknown = match.kind === "unknown";
      this.#refuse(
        { req, res },
        unknown ? "ROUTE_UNKNOWN" : "METHOD_NOT_ALLOWED",
        unknown ? "there is no such route" : `this route takes ${match.allow}`,
        requestId,
        dialectOf(path),
        {
          allow: unknown ? undefined : match.allow,
        },
      );
      return;
    }
    const { route, rest } = match;
    const found = vouched === undefined ? this.#keyOf(req, route) : this.#vouchedFor(vouched, route);
    if (found.kind === "refused")
      return this.#refuse({ req, res }, found.code, found.message, requestId, route.dialect, {
        retryAfterMs: found.retryAfterMs,
      });
    this.#deps.handle(
      {
        req,
        res,
        requestId,
        route,
        path,
        query: target.query,
        rest,
        key: found.key,
        dialect: route.dialect,
        arrivedAt,
        arrivedWall: clock.wall(),
      },
      expectsContinue,
    );
  }

  #keyOf(req: ClientRequest, route: Route): KeyOutcome {
    const config = this.#deps.config();
    const credential = readCredential(req.rawHeaders, req.target, route.keyHeader);
    if (credential.kind === "bad") return { kind: "refused", code: "BAD_REQUEST", message: credential.why };
    if (route.access === "open" || config.auth.mode === "none") return { kind: "ok", key: ANONYMOUS };
    if (route.access === "scrape" && config.metricsPublic) return { kind: "ok", key: ANONYMOUS };
    if (credential.kind === "none")
      return this.#denied("missing", "UNAUTHORIZED", "send your key as `Authorization: Bearer KEY`");
    const check = this.#deps.keys.check(credential.value, req.remoteAddress ?? "");
    switch (check.kind) {
      case "wrong":
        if (this.#deps.keysAway()) return this.#denied("unknown", "KEY_STORE_UNAVAILABLE", KEYS_AWAY);
        return this.#denied("unknown", "UNAUTHORIZED", "the key is not valid");
      case "expired":
        return this.#denied("expired", "UNAUTHORIZED", "the key has expired");
      case "throttled":
        return {
          ...this.#denied("rate_limited", "RATE_LIMITED", "too many wrong keys came from this address"),
          retryAfterMs: check.retryAfterMs,
        };
      default:
        return this.#admit(check.key, route);
    }
  }

  /** Keys are made and the record is read here alone, whoever the control plane says it is that asks. */
  #vouchedFor(key: RequestKey, route: Route): KeyOutcome {
    if (mayBeAsked(route.handler)) return this.#admit(key, route);
    return this.#denied("forbidden", "FORBIDDEN", "a control plane may not ask for this");
  }

  /** By its role. */
  #admit(key: RequestKey, { access }: Route): KeyOutcome {
    const roles = access === "scrape" ? SCRAPERS : access;
    if (roles === "open" || roles.includes(key.role)) return { kind: "ok", key };
    return this.#denied("forbidden", "FORBIDDEN", `a key with role ${key.role} may not use this route`);
  }

  #denied(
    why: Parameters<GatewayMetrics["authFailed"]>[0],
    code: ErrorCode,
    message: string,
  ): Extract<KeyOutcome, { kind: "refused" }> {
    this.#deps.metrics.authFailed(why);
    return { kind: "refused", code, message };
  }

  /** What the request is for is in doubt, so the connection is of no further use. */
  #refuseTarget(req: ClientRequest, res: ClientReply, requestId: string, code: ErrorCode, why: string): void {
    this.#deps.metrics.forUpstream(null).refused(code);
    refuseAtEdge(res, requestId, code, why, dialectOf(req.target));
  }

  #refuse(
    client: { readonly req: ClientRequest; readonly res: ClientReply },
    code: ErrorCode,
    message: string,
    requestId: string,
    dialect: Dialect,
    facts: { readonly allow?: string | undefined; readonly retryAfterMs?: number | undefined },
  ): void {
    this.#deps.metrics.forUpstream(null).refused(code);
    sendError(client, code, message, { dialect, requestId, clock: this.#deps.clock, ...facts });
  }
}

const KEYS_AWAY = "keys that were made while running can't be read now, and this may be one of them";
const SCRAPERS: readonly RequestKey["role"][] = ["metrics", "operator", "admin"];

/**
 * A route with a slash behind it is that route, with all that is known of it; engines redirect such a path or answer it the
 * same. What lies elsewhere has one spelling.
 */
const withoutTrailingSlash = (path: string): string =>
  path.startsWith("/v1/") && path.endsWith("/") && !path.startsWith("/v1/models/") ? path.slice(0, -1) : path;
