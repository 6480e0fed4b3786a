import { page, parsed, type CloudDialect, type RefusalKind } from "./cloud-dialect.ts";

const STATUSES: Readonly<Record<RefusalKind, number>> = {
  rateLimited: 429,
  unavailable: 503,
  serverError: 500,
  badRequest: 400,
  badKey: 401,
  noMoney: 402,
  policy: 400,
  errorInside: 200,
};

/** A service with tasks under `/v1/tasks`, for the adapter that is described by configuration. It knows idempotency keys. */
export const tasksDialect = (key: string): CloudDialect => ({
  read: (method, url, headers) => {
    const [found, id, act] = /^\/v1\/tasks(?:\/([^/]+)(\/cancel)?)?$/.exec(url.pathname) ?? [];
    const key = url.searchParams.get("key");
    if (method === "GET" && url.pathname === "/v1/tasks" && key !== null) return { kind: "find", key };
    if (found === undefined) return undefined;
    const idempotencyKey = headers["idempotency-key"];
    if (id === undefined)
      return method === "POST"
        ? { kind: "submit", idempotencyKey: typeof idempotencyKey === "string" ? idempotencyKey : null }
        : undefined;
    if (act !== undefined) return method === "POST" ? { kind: "cancel", id } : undefined;
    return method === "GET" ? { kind: "look", id } : undefined;
  },
  authorized: (headers) => headers.authorization === `Bearer ${key}`,
  accepted: ({ task }) => page(202, { data: { id: task.id } }),
  view: ({ task, state, url, charged }) =>
    page(200, {
      data: {
        id: task.id,
        state: task.cancelled ? "cancelled" : state,
        progress: state === "succeeded" ? 1 : task.looks / 10,
        ...(state === "succeeded" && task.action.end !== "noResult" ? { output: { url } } : {}),
        ...(state === "failed" ? { reason: "it could not be made" } : {}),
        ...(state === "queued" || state === "running" ? {} : { charged }),
      },
    }),
  placed: () => page(404, {}),
  refused: (kind) => page(STATUSES[kind], { error: `refused: ${kind}` }),
  unknownTask: () => page(404, { error: "no such task" }),
  dedupes: true,
});

/** A service with OpenAI's chat API, which answers at once. */
export const openaiDialect = (key: string): CloudDialect => ({
  read: (method, url, headers) => {
    const idempotencyKey = headers["idempotency-key"];
    return method === "POST" && url.pathname === "/v1/chat/completions"
      ? { kind: "submit", idempotencyKey: typeof idempotencyKey === "string" ? idempotencyKey : null }
      : undefined;
  },
  authorized: (headers) => headers.authorization === `Bearer ${key}`,
  accepted: ({ task }) =>
    page(200, {
      id: task.id,
      object: "chat.completion",
      model: parsed(task.body)["model"],
      choices: [{ index: 0, message: { role: "assistant", content: "as asked" }, finish_reason: "stop" }],
      usage: task.action.chargeTold ?? { prompt_tokens: 20, completion_tokens: 30, total_tokens: 50 },
    }),
  view: () => page(404, {}),
  placed: () => page(404, {}),
  refused: (kind) => {
    const code = { noMoney: "insufficient_quota", policy: "content_policy_violation", errorInside: 429 }[
      kind as string
    ];
    const status = kind === "noMoney" ? 429 : STATUSES[kind];
    return page(status, { error: { message: `refused: ${kind}`, type: "error", code: code ?? null } });
  },
  unknownTask: () => page(404, {}),
  dedupes: false,
});
