import { createHmac } from "node:crypto";
import type { Clock } from "../../kernel/clock.ts";
import { page, parsed, type CloudDialect, type Page, type RefusalKind } from "./cloud-dialect.ts";
import type { TaskState } from "./cloud-ledger.ts";

const CODES: Readonly<Record<RefusalKind, readonly [number, number, string]>> = {
  rateLimited: [429, 1303, "parallel task over resource pack limit"],
  unavailable: [503, 5001, "service unavailable"],
  serverError: [500, 5000, "server internal error"],
  badRequest: [400, 1201, "parameters invalid"],
  badKey: [401, 1004, "token expired"],
  noMoney: [429, 1102, "resource pack exhausted"],
  policy: [400, 1301, "risk control"],
  errorInside: [200, 1201, "parameters invalid"],
};
const STATES: Readonly<Record<TaskState, string>> = {
  queued: "submitted",
  running: "processing",
  succeeded: "succeed",
  failed: "failed",
};
const PLACE = /^\/v1\/videos\/(text2video|image2video)(?:\/([^/]+))?$/;

export interface KlingKeys {
  readonly accessKey: string;
  readonly secretKey: string;
  readonly clock: Clock;
}

const told = (data: unknown): Page => page(200, { code: 0, message: "SUCCEED", request_id: "r-1", data });

export const klingDialect = (keys: KlingKeys): CloudDialect => ({
  read: (method, url, _headers, body) => {
    const [found, kind, id] = PLACE.exec(url.pathname) ?? [];
    if (found === undefined) return undefined;
    if (method === "GET" && id !== undefined) return { kind: "look", id };
    const { external_task_id: key, image, duration } = parsed(body);
    // A wrong path or type is refused there, and would be a fault of the adapter here.
    const fits = (kind === "image2video") === (image !== undefined) && typeof duration === "string";
    if (method !== "POST" || id !== undefined || !fits) return undefined;
    return { kind: "submit", idempotencyKey: typeof key === "string" ? key : null };
  },
  authorized: (headers) => isToken(headers.authorization ?? "", keys),
  accepted: ({ task }) => told({ task_id: task.id, task_status: "submitted", created_at: 1, updated_at: 1 }),
  view: ({ task, state, url }) => {
    const videos = task.action.end === "noResult" ? [] : [{ id: "v-1", url, duration: "5" }];
    const result = state === "succeeded" ? { task_result: { videos } } : {};
    const why = state === "failed" ? "the prompt can't be drawn" : "";
    return told({ task_id: task.id, task_status: STATES[state], task_status_msg: why, ...result });
  },
  placed: () => page(404, {}),
  refused: (kind) => {
    const [status, code, message] = CODES[kind];
    return page(status, { code, message, request_id: "r-1" });
  },
  unknownTask: () => page(404, { code: 1203, message: "task not found", request_id: "r-1" }),
  dedupes: false,
});

/** Signed by the secret key, of this access key, begun and not expired by the cloud's clock. */
function isToken(authorization: string, { accessKey, secretKey, clock }: KlingKeys): boolean {
  const [head = "", claims = "", signature] = authorization.replace(/^Bearer /, "").split(".");
  if (createHmac("sha256", secretKey).update(`${head}.${claims}`).digest("base64url") !== signature) return false;
  const header = parsed(decode(head));
  const { iss, exp, nbf } = parsed(decode(claims));
  const now = clock.wall() / 1_000;
  return header["alg"] === "HS256" && iss === accessKey && Number(exp) > now && Number(nbf) <= now;
}

const decode = (text: string): string => Buffer.from(text, "base64url").toString("utf8");
