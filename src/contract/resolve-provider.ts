import { secretIn, type Env } from "./env.ts";
import { MICROS, microsUp } from "./money.ts";
import type { ProviderFile } from "./overflow-provider-schema.ts";
import type { ProviderPrice, ProviderSettings, ProviderTemplate } from "./provider-settings.ts";

const USUAL_URLS: Readonly<Record<string, string>> = {
  minimax: "https://api.minimax.io",
  kling: "https://api-singapore.klingai.com",
};
const MS = 1_000;

/** What a tier lacks to be spoken to, in words with the key at fault; what the schema alone can't see. */
export function providerProblems(file: ProviderFile): readonly { readonly key: string; readonly problem: string }[] {
  const problems: { key: string; problem: string }[] = [];
  const { provider } = file;
  const isVideoCloud = provider === "minimax" || provider === "kling";
  if (isVideoCloud && file.price === undefined)
    problems.push({
      key: "price",
      problem: `\`provider: ${provider}\` needs a price: nothing is sent whose cost is unknown`,
    });
  if (isVideoCloud && file.key_env === undefined)
    problems.push({ key: "key_env", problem: `\`provider: ${provider}\` needs the place's API key` });
  if (provider === "kling" && file.secret_key_env === undefined)
    problems.push({ key: "secret_key_env", problem: "`provider: kling` needs the secret key, which signs its tokens" });
  if (!isVideoCloud && file.base_url === undefined)
    problems.push({ key: "base_url", problem: `\`provider: ${provider}\` needs the place's address` });
  if ((provider === "http") !== (file.http !== undefined))
    problems.push({ key: "http", problem: "`http` and `provider: http` come together" });
  return problems;
}

export function resolveProvider(file: ProviderFile, env: Env): ProviderSettings {
  return {
    kind: file.provider,
    model: file.model ?? null,
    baseUrl: (file.base_url ?? USUAL_URLS[file.provider] ?? "").replace(/\/+$/, ""),
    key: secretIn(env, file.key_env),
    signingKey: secretIn(env, file.secret_key_env),
    price: file.price === undefined ? null : resolvePrice(file.price),
    template: file.http === undefined ? null : resolveTemplate(file.http),
    submitMs: file.timeouts.submit_s * MS,
    pollMs: file.timeouts.poll_s * MS,
    fetchMs: file.timeouts.fetch_s * MS,
  };
}

function resolvePrice(price: NonNullable<ProviderFile["price"]>): ProviderPrice {
  const { currency } = price;
  if (price.per_call !== undefined) return { unit: "call", micros: microsOf(price.per_call), currency };
  if (price.per_second !== undefined) return { unit: "second", micros: microsOf(price.per_second), currency };
  return { unit: "1kTokens", micros: microsOf(price.per_1k_tokens ?? 0), currency };
}

/** Up: a price below a millionth is not free. */
const microsOf = (amount: number): number => microsUp(amount * MICROS);

function resolveTemplate(file: NonNullable<ProviderFile["http"]>): ProviderTemplate {
  const { submit, poll, result, find, cancel } = file;
  return {
    submit: {
      method: submit.method,
      path: submit.path,
      taskId: submit.task_id,
      idempotencyHeader: submit.idempotency_header?.toLowerCase() ?? null,
    },
    poll: {
      method: poll.method,
      path: poll.path,
      status: poll.status,
      running: poll.running,
      succeeded: poll.succeeded,
      failed: poll.failed,
      progress: poll.progress ?? null,
      error: poll.error ?? null,
      charged: poll.charged ?? null,
    },
    result: { url: result.url ?? null, path: result.path ?? null },
    find: find === undefined ? null : { method: find.method, path: find.path, taskId: find.task_id },
    cancel: cancel ?? null,
    error: file.error ?? null,
  };
}
