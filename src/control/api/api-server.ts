import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Server as TlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { readCredential } from "../../access/credentials.ts";
import type { KeyRing } from "../../access/key-ring.ts";
import type { AuthSettings, ListenAddress } from "../../contract/gateway-config.ts";
import type { Role } from "../../contract/roles.ts";
import { judgeHost, judgeOrigin } from "../../decide/board/judge-browser.ts";
import { checkRequestHeaders, saneRequestId } from "../../decide/http/header-rules.ts";
import { canonicalPath } from "../../decide/http/request-line.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { Clock } from "../../kernel/clock.ts";
import { hasErrorCode, messageOf, YardmasterError } from "../../kernel/errors.ts";
import { requestIds } from "../../kernel/ids.ts";
import type { Logger } from "../../kernel/log.ts";
import { createServer, loadHttps } from "../../kernel/node-builtins.ts";
import { type Answer, refuse, Refusal, send } from "./answer.ts";
import { API_TABLE, type ApiRoute, SCRAPERS } from "./routes.ts";
import { isSameTls, type ServerTls } from "./server-tls.ts";

export interface ApiRequest {
  readonly req: IncomingMessage;
  readonly route: ApiRoute;
  /** What the pattern's `*` stands for, decoded. */
  readonly rest: string;
  readonly query: URLSearchParams;
  readonly requestId: string;
  /** The address that it comes from; null: the connection has gone. */
  readonly from: string | null;
  /** Id of the key that asks, and its role. */
  readonly keyId: string;
  readonly role: Role;
  /** Whether it still may. */
  readonly holds: () => boolean;
}

export interface ApiServerPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly keys: KeyRing;
  readonly auth: () => AuthSettings;
  /** Whether the metrics need no key. */
  readonly metricsPublic: boolean;
  /** Null: plain HTTP. */
  readonly tls: ServerTls | null;
  /** Of the board's cookie; undefined: nobody is signed in by it. */
  readonly session: (req: IncomingMessage) => BoardCaller | undefined;
  /** Names under which the board may be asked for, in lower case. */
  readonly hosts: ReadonlySet<string>;
  readonly answer: (request: ApiRequest) => Promise<Answer>;
}

/** Whom a session stands for. */
export interface BoardCaller {
  readonly keyId: string;
  readonly role: Role;
  readonly holds: () => boolean;
}

const CONNECTIONS_MAX = 2_048;
/** A browser that was here once asks over TLS alone, for a year. */
const TLS_ONLY = "max-age=31536000";
const HANDSHAKE_MS = 10_000;
const HEADERS_MS = 10_000;
const REQUEST_MS = 60_000;
const CHECK_MS = 1_000;
const HEADER_BYTES_MAX = 16 * 1024;

type Caller =
  | ({ readonly kind: "ok" } & BoardCaller)
  | {
      readonly kind: "refused";
      readonly code: "BAD_REQUEST" | "UNAUTHORIZED" | "FORBIDDEN" | "RATE_LIMITED" | "HOST_REFUSED" | "ORIGIN_REFUSED";
      readonly message: string;
      readonly retryAfterMs?: number;
    };

/**
 * The listener of the control plane's API. From a request's head to its answer in one order: framing, target, route, key, role.
 * `server` is there for who takes over upgraded connections.
 */
export class ApiServer {
  readonly server: Server;
  readonly #ports: ApiServerPorts;
  readonly #nextId = requestIds();
  readonly #secure: TlsServer | null;
  #tls: ServerTls | null;

  constructor(ports: ApiServerPorts) {
    this.#ports = ports;
    const options = {
      headersTimeout: HEADERS_MS,
      requestTimeout: REQUEST_MS,
      connectionsCheckingInterval: CHECK_MS,
      maxHeaderSize: HEADER_BYTES_MAX,
      requireHostHeader: false,
      insecureHTTPParser: false,
      noDelay: true,
    };
    this.#tls = ports.tls;
    // Who is asked for a certificate is said by the path: browsers and `ctl` have keys alone.
    const secure = {
      handshakeTimeout: HANDSHAKE_MS,
      requestCert: ports.tls?.ca !== undefined,
      rejectUnauthorized: false,
    };
    this.#secure = ports.tls === null ? null : loadHttps().createServer({ ...options, ...secure, ...ports.tls });
    this.server = this.#secure ?? createServer(options);
    // Node would cut the list short and go on; the header rules refuse instead.
    this.server.maxHeadersCount = 0;
    this.server.maxConnections = CONNECTIONS_MAX;
    this.server.on("request", (req, res) => this.#onRequest(req, res));
  }

  /** For connections that are made from now on. Whether clients are asked for a certificate stays as it was. False: nothing new. */
  renewTls(tls: ServerTls): boolean {
    if (this.#secure === null || (this.#tls !== null && isSameTls(this.#tls, tls))) return false;
    this.#tls = tls;
    this.#secure.setSecureContext(tls);
    return true;
  }

  listen(address: ListenAddress): Promise<AddressInfo> {
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen({ host: address.host, port: address.port }, () => {
        this.server.off("error", reject);
        resolve(this.server.address() as AddressInfo);
      });
    });
  }

  /** Nothing new is taken, and what runs is cut after a moment. */
  async close(graceMs: number): Promise<void> {
    const closed = new Promise<void>((resolve) => {
      this.server.close(() => resolve());
    });
    this.server.closeIdleConnections();
    const cut = this.#ports.clock.after(graceMs, () => this.server.closeAllConnections());
    await closed;
    cut.cancel();
  }

  #onRequest(req: IncomingMessage, res: ServerResponse): void {
    // Refusals too: a browser's first answer may be one.
    if (this.#secure !== null) res.setHeader("strict-transport-security", TLS_ONLY);
    const headers = checkRequestHeaders(req.rawHeaders, req.httpVersion);
    const sent = req.headers["x-request-id"];
    const requestId = saneRequestId(typeof sent === "string" ? sent : undefined) ?? this.#nextId();
    if (headers.kind === "bad") return refuse(res, requestId, headers.code, headers.why);
    const target = canonicalPath(req.url ?? "");
    if (target.kind === "tooLong")
      return refuse(res, requestId, "URI_TOO_LONG", "the request target is longer than 8 KiB");
    if (target.kind === "bad") return refuse(res, requestId, "BAD_REQUEST", target.why);
    const match = API_TABLE.match(req.method ?? "", target.path);
    if (match.kind === "unknown") return refuse(res, requestId, "ROUTE_UNKNOWN", "there is no such route");
    if (match.kind === "methodNotAllowed")
      return refuse(res, requestId, "METHOD_NOT_ALLOWED", `this route takes ${match.allow}`, { allow: match.allow });
    const caller = this.#callerOf(req, match.route);
    if (caller.kind === "refused") {
      const { retryAfterMs } = caller;
      return refuse(res, requestId, caller.code, caller.message, retryAfterMs === undefined ? {} : { retryAfterMs });
    }
    const query = new URLSearchParams(target.query);
    const { keyId, role, holds } = caller;
    const from = req.socket.remoteAddress ?? null;
    const request = { req, route: match.route, rest: decoded(match.rest), query, requestId, from, keyId, role, holds };
    this.#ports.answer(request).then(
      (answer) => send(res, requestId, answer),
      (error: unknown) => this.#onError(res, requestId, match.route, error),
    );
    return undefined;
  }

  #callerOf(req: IncomingMessage, { access }: ApiRoute): Caller {
    const credential = readCredential(req.rawHeaders, req.url ?? "");
    if (credential.kind === "bad") return { kind: "refused", code: "BAD_REQUEST", message: credential.why };
    const session = credential.kind === "none" ? this.#ports.session(req) : undefined;
    const isKeyless = this.#ports.auth().mode === "none";
    const isOpen = access === "open" || (access === "scrape" && this.#ports.metricsPublic);
    const guarded = this.#guard(req, {
      byCookie: session !== undefined,
      // A stranger's page that has had its name pointed here has no key, and whoever shows one is no such page.
      byName: access === "page" || session !== undefined || (isKeyless && !isOpen && access !== "scrape"),
    });
    if (guarded !== null) return guarded;
    if (isOpen || access === "page") return { kind: "ok", ...ANYBODY };
    if (session !== undefined) return ofRole(session, access);
    if (isKeyless) return { kind: "ok", ...ANYBODY, holds: () => this.#ports.auth().mode === "none" };
    if (credential.kind === "none")
      return { kind: "refused", code: "UNAUTHORIZED", message: "send your key as `Authorization: Bearer KEY`" };
    const { keys } = this.#ports;
    const check = keys.check(credential.value, req.socket.remoteAddress ?? "");
    switch (check.kind) {
      case "wrong":
        return { kind: "refused", code: "UNAUTHORIZED", message: "the key is not valid" };
      case "expired":
        return { kind: "refused", code: "UNAUTHORIZED", message: "the key has expired" };
      case "throttled": {
        const message = "too many wrong keys came from this address";
        return { kind: "refused", code: "RATE_LIMITED", message, retryAfterMs: check.retryAfterMs };
      }
      case "ok": {
        const { id, role, hash } = check.key;
        return ofRole({ keyId: id, role, holds: () => keys.byId(id)?.hash === hash }, access);
      }
      default:
        return assertNever(check, "key check");
    }
  }

  /** What a browser may be made to send from elsewhere; null: nothing is wrong. */
  #guard(
    req: IncomingMessage,
    { byCookie, byName }: { readonly byCookie: boolean; readonly byName: boolean },
  ): Caller | null {
    const { host, origin, "sec-fetch-site": site } = req.headers;
    const named = byName ? judgeHost(host, this.#ports.hosts) : null;
    if (named?.kind === "refused") return { kind: "refused", code: named.code, message: named.why };
    const secFetchSite = typeof site === "string" ? site : undefined;
    const from = judgeOrigin({ method: req.method ?? "", host, origin, secFetchSite, byCookie });
    return from.kind === "ok" ? null : { kind: "refused", code: from.code, message: from.why };
  }

  #onError(res: ServerResponse, requestId: string, route: ApiRoute, error: unknown): void {
    if (error instanceof Refusal) return refuse(res, requestId, error.code, error.message, { details: error.details });
    if (error instanceof YardmasterError && !hasErrorCode(error, "STORE_REFUSED"))
      return refuse(res, requestId, error.code, error.message);
    this.#ports.log.error("api.internal", {
      request: requestId,
      route: route.pattern,
      message: messageOf(error),
    });
    return refuse(res, requestId, "INTERNAL", "a fault in the control plane; the log has this request id");
  }
}

/** Where no key is asked for. */
const ANYBODY: BoardCaller = { keyId: "anonymous", role: "admin", holds: () => true };

function ofRole(caller: BoardCaller, access: "scrape" | readonly Role[]): Caller {
  const roles = access === "scrape" ? SCRAPERS : access;
  if (roles.includes(caller.role)) return { kind: "ok", ...caller };
  return { kind: "refused", code: "FORBIDDEN", message: `a key with role ${caller.role} may not use this route` };
}

function decoded(rest: string): string {
  try {
    return decodeURIComponent(rest);
  } catch {
    return rest;
  }
}
