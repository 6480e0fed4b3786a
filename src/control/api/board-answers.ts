import type { IncomingMessage } from "node:http";
import type { AcceptedKey, KeyRing } from "../../access/key-ring.ts";
import { BOARD_ROUTES, type Who } from "../../contract/board.ts";
import { signInBody } from "../../contract/board-schema.ts";
import type { AuthSettings } from "../../contract/gateway-config.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Secret } from "../../kernel/secret.ts";
import type { BoardAssets } from "../board/board-assets.ts";
import type { BoardHub } from "../board/board-hub.ts";
import { type BoardSession, type BoardSessions, SESSION_IDLE_MS, SESSION_MS_MAX } from "../board/board-sessions.ts";
import type { GatewayDesk } from "../board/gateway-desk.ts";
import { type Answer, json } from "./answer.ts";
import type { ApiRequest, BoardCaller } from "./api-server.ts";
import { BOARD_HEADERS, fileAnswer, NOT_BUILT } from "./board-files.ts";
import { read } from "./catalog-answers.ts";
import { readJson, SMALL_BODY_LIMITS } from "./read-body.ts";
import { BOARD_ROLES, boardActionsOf, type BoardHandler } from "./routes.ts";

export interface BoardAnswerPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly keys: KeyRing;
  readonly auth: () => AuthSettings;
  readonly sessions: BoardSessions;
  readonly assets: BoardAssets;
  readonly hub: BoardHub;
  readonly desk: GatewayDesk;
  readonly isTls: boolean;
  readonly clusterId: string;
  readonly version: string;
}

const UPSTREAM_CHARS_MAX = 256;

/** What the routes of the board answer that `ctl` has no use for. */
export class BoardAnswers {
  readonly #ports: BoardAnswerPorts;
  readonly #cookie: string;

  constructor(ports: BoardAnswerPorts) {
    this.#ports = ports;
    // A cookie of this prefix is taken over TLS alone, which on loopback there is none of.
    this.#cookie = ports.isTls ? "__Host-ym-board" : "ym-board";
  }

  /** Whom the request's cookie stands for. */
  caller(req: IncomingMessage): BoardCaller | undefined {
    const token = this.#tokenOf(req);
    const session = token === null ? undefined : this.#ports.sessions.use(token);
    if (token === null || session === undefined) return undefined;
    const { keyId, role } = session;
    return { keyId, role, holds: () => this.#ports.sessions.use(token) !== undefined };
  }

  async answer(request: ApiRequest, handler: BoardHandler): Promise<Answer> {
    switch (handler) {
      case "boardHome":
        return this.#own(302, { location: BOARD_ROUTES.page });
      case "boardFile":
        return this.#file(request);
      case "boardWho":
        return this.#who(request.req);
      case "boardSignIn":
        return this.#signIn(request);
      case "boardSignOut":
        return this.#signOut(request.req);
      case "boardStream":
        return this.#stream(request);
      case "boardPlot":
        return this.#plot(request.query);
      case "boardLink":
        return this.#link(request);
      default:
        return assertNever(handler, "board handler");
    }
  }

  async #file({ rest, req }: ApiRequest): Promise<Answer> {
    const file = await this.#ports.assets.find(rest === "" ? "index.html" : rest);
    if (file === undefined) throw new YardmasterError("ROUTE_UNKNOWN", "the board has no such file");
    if (file === null) return this.#own(503, { "content-type": "text/html; charset=utf-8" }, Buffer.from(NOT_BUILT));
    return fileAnswer(file, req, BOARD_HEADERS);
  }

  #who(req: IncomingMessage): Answer {
    const token = this.#tokenOf(req);
    const session = token === null ? undefined : this.#ports.sessions.use(token);
    if (session !== undefined) return json(this.#told(session), 200, BOARD_HEADERS);
    if (this.#ports.auth().mode === "none") return json(this.#told(null), 200, BOARD_HEADERS);
    throw new YardmasterError("UNAUTHORIZED", "nobody is signed in");
  }

  async #signIn({ req }: ApiRequest): Promise<Answer> {
    const { clock, sessions, log } = this.#ports;
    // A form of another page can send text, and nothing that is called JSON.
    if (!/^application\/json(?:;|$)/i.test(req.headers["content-type"] ?? ""))
      throw new YardmasterError("MEDIA_TYPE_UNSUPPORTED", "send JSON");
    const asked = read(signInBody, await readJson(req, clock, SMALL_BODY_LIMITS));
    const peer = req.socket.remoteAddress ?? "";
    const key = "key" in asked ? this.#keyOf(asked.key, peer) : this.#onceKeyOf(asked.once, peer);
    if (!BOARD_ROLES.includes(key.role))
      throw new YardmasterError("FORBIDDEN", `a key with role ${key.role} may not use the board`);
    const before = this.#tokenOf(req);
    if (before !== null) sessions.close(before);
    const { token, session } = sessions.open(key);
    log.info("board.signed_in", { key: key.id, role: key.role });
    return json(this.#told(session), 200, { ...BOARD_HEADERS, "set-cookie": this.#setCookie(token) });
  }

  #signOut(req: IncomingMessage): Answer {
    const token = this.#tokenOf(req);
    if (token !== null) this.#ports.sessions.close(token);
    return this.#own(204, { "set-cookie": `${this.#cookie}=; ${this.#attributes(0)}` });
  }

  #stream({ req, role, query, holds }: ApiRequest): Answer {
    const { hub } = this.#ports;
    if (hub.isFull) throw new YardmasterError("BOARDS_FULL", "as many boards are open as are served");
    const sent = req.headers["last-event-id"];
    const since = typeof sent === "string" ? sent : query.get("since");
    const isCompressed = /\bgzip\b/.test(String(req.headers["accept-encoding"] ?? ""));
    return {
      kind: "own",
      write: (res) => {
        res.writeHead(200, {
          ...BOARD_HEADERS,
          "content-type": "text/event-stream; charset=utf-8",
          "x-accel-buffering": "no",
          ...(isCompressed ? { "content-encoding": "gzip" } : {}),
        });
        hub.open({ res, role, since, isCompressed, holds });
      },
    };
  }

  #plot(query: URLSearchParams): Answer {
    const upstream = query.get("upstream") ?? "";
    if (upstream === "" || upstream.length > UPSTREAM_CHARS_MAX)
      throw new YardmasterError("BAD_REQUEST", "upstream: name one");
    return json(this.#ports.desk.plot(upstream), 200, BOARD_HEADERS);
  }

  /** For a person on a machine that `ctl` runs on: a link that signs a browser in, once, as the key that asks. */
  #link({ keyId }: ApiRequest): Answer {
    const key = this.#ports.keys.byId(keyId);
    if (key === undefined)
      throw new YardmasterError("FORBIDDEN", "where no keys are asked for there is nothing to sign in to");
    return json({ path: onceLink(this.#ports.sessions.makeOnce(key)) }, 201);
  }

  #keyOf(presented: string, peer: string): AcceptedKey {
    const check = this.#checked(presented, peer);
    if (check.kind === "ok") return check.key;
    throw new YardmasterError(
      "UNAUTHORIZED",
      check.kind === "expired" ? "the key has expired" : "the key is not valid",
    );
  }

  #onceKeyOf(secret: string, peer: string): AcceptedKey {
    const key = this.#ports.sessions.takeOnce(secret);
    if (key !== undefined) return key;
    // Counts as a wrong key, which it is: guessing links is slowed down like guessing keys.
    this.#checked(secret, peer);
    throw new YardmasterError("UNAUTHORIZED", "the link was used already, or its time is over");
  }

  #checked(presented: string, peer: string): Exclude<ReturnType<KeyRing["check"]>, { kind: "throttled" }> {
    const check = this.#ports.keys.check(presented, peer);
    if (check.kind === "throttled")
      throw new YardmasterError("RATE_LIMITED", "too many wrong keys came from this address");
    return check;
  }

  #told(session: BoardSession | null): Who {
    const { clusterId, version } = this.#ports;
    const keyless = session === null;
    return {
      keyId: session?.keyId ?? "anonymous",
      role: session?.role ?? "admin",
      signedIn: !keyless,
      expiresAt: session?.expiresAt ?? null,
      idleMs: keyless ? null : SESSION_IDLE_MS,
      may: boardActionsOf(session?.role ?? null),
      clusterId,
      version,
    };
  }

  #tokenOf(req: IncomingMessage): string | null {
    for (const part of (req.headers.cookie ?? "").split(";")) {
      const [name, value] = part.trim().split("=", 2);
      if (name === this.#cookie && value !== undefined && /^[A-Za-z0-9_-]{43}$/.test(value)) return value;
    }
    return null;
  }

  #setCookie(token: Secret): string {
    return `${this.#cookie}=${token.reveal()}; ${this.#attributes(SESSION_MS_MAX / 1_000)}`;
  }

  #attributes(seconds: number): string {
    return `Path=/; HttpOnly; SameSite=Strict; Max-Age=${seconds}${this.#ports.isTls ? "; Secure" : ""}`;
  }

  #own(status: number, headers: Readonly<Record<string, string>>, body?: Buffer): Answer {
    return {
      kind: "own",
      write: (res) => {
        res.writeHead(status, {
          ...BOARD_HEADERS,
          ...headers,
          ...(status === 204 ? {} : { "content-length": body?.length ?? 0 }),
        });
        res.end(res.req.method === "HEAD" ? undefined : body);
      },
    };
  }
}

/** The secret is behind the `#`, which no browser sends anywhere. */
export const onceLink = (secret: Secret): string => `${BOARD_ROUTES.page}#once=${secret.reveal()}`;
