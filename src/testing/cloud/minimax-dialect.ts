import { page, type CloudDialect, type RefusalKind } from "./cloud-dialect.ts";
import type { CloudTask, TaskState } from "./cloud-ledger.ts";

const base = (code: number, words: string) => ({ base_resp: { status_code: code, status_msg: words } });
const OK = base(0, "success");

const CODES: Readonly<Record<RefusalKind, readonly [number, number, string]>> = {
  rateLimited: [200, 1002, "rate limit"],
  unavailable: [503, 1000, "busy"],
  serverError: [500, 1000, "unknown error"],
  badRequest: [200, 2013, "invalid params"],
  badKey: [200, 1004, "login fail: not authorised"],
  noMoney: [200, 1008, "insufficient balance"],
  policy: [200, 1026, "input new_sensitive"],
  errorInside: [200, 1001, "request timeout"],
};

const STATES: Readonly<Record<TaskState, string>> = {
  queued: "Queueing",
  running: "Processing",
  succeeded: "Success",
  failed: "Fail",
};

const bearer =
  (key: string): CloudDialect["authorized"] =>
  (headers) =>
    headers.authorization === `Bearer ${key}`;

const hasResult = (task: CloudTask): boolean => task.action.end !== "noResult";

/** The API whose results are files; the file has its task's id. */
export const minimaxDialect = (key: string): CloudDialect => ({
  read: (method, url) => {
    if (method === "POST" && url.pathname === "/v1/video_generation") return { kind: "submit", idempotencyKey: null };
    if (method !== "GET") return undefined;
    if (url.pathname === "/v1/query/video_generation")
      return { kind: "look", id: url.searchParams.get("task_id") ?? "" };
    return url.pathname === "/v1/files/retrieve"
      ? { kind: "place", id: url.searchParams.get("file_id") ?? "" }
      : undefined;
  },
  authorized: bearer(key),
  accepted: ({ task }) => page(200, { task_id: task.id, ...OK }),
  view: ({ task, state }) => {
    // As a number: its last digits are lost by who reads it as a double.
    const file = state === "succeeded" && hasResult(task) ? { file_id: raw(task.id) } : {};
    const code = state === "failed" ? base(1027, "output new_sensitive") : OK;
    return page(200, {
      task_id: task.id,
      status: STATES[state],
      video_width: 1_366,
      video_height: 768,
      ...file,
      ...code,
    });
  },
  placed: ({ task, url }) =>
    page(200, { file: { file_id: raw(task.id), bytes: 1, filename: "output.mp4", download_url: url }, ...OK }),
  refused: (kind) => {
    const [status, code, words] = CODES[kind];
    return page(status, { task_id: "", ...base(code, words) });
  },
  unknownTask: () => page(200, { task_id: "", status: "", ...base(2013, "invalid params, task not found") }),
  dedupes: false,
});

/** The API of the newest model, whose tasks name the video's address. */
export const minimaxTasksDialect = (key: string): CloudDialect => ({
  read: (method, url) => {
    if (method === "POST" && url.pathname === "/v2/video_generation") return { kind: "submit", idempotencyKey: null };
    const id = /^\/v2\/query\/video_generation\/([^/]+)$/.exec(url.pathname)?.[1];
    return method === "GET" && id !== undefined ? { kind: "look", id } : undefined;
  },
  authorized: bearer(key),
  accepted: ({ task }) => page(200, { task_id: task.id }),
  view: ({ task, state, url }) => {
    const content = state === "succeeded" && hasResult(task) ? { content: { url, prompt: "as asked" } } : {};
    const error = state === "failed" ? { error: { code: "1027", message: "output flagged" } } : {};
    return page(200, { task: { id: task.id, model: "MiniMax-H3", status: state, ...content, ...error, usage: {} } });
  },
  placed: () => page(404, {}),
  refused: (kind) => {
    const statuses = {
      rateLimited: 429,
      unavailable: 503,
      serverError: 500,
      badRequest: 400,
      badKey: 401,
      noMoney: 402,
    };
    const status = kind === "policy" ? 400 : kind === "errorInside" ? 200 : statuses[kind];
    return page(status, { error: { message: kind, http_code: String(kind === "errorInside" ? 429 : status) } });
  },
  unknownTask: () => page(404, { error: { message: "task not found", http_code: "404" } }),
  dedupes: false,
});

/** A number with digits that a double does not hold. */
const raw = (digits: string): unknown => (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(digits);
