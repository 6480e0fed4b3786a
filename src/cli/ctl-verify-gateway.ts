import { z } from "zod";
import { REQUEST_CLASSES, type RequestClass } from "../contract/request-class.ts";
import type { Clock } from "../kernel/clock.ts";
import { withDeadline } from "../kernel/deadline.ts";
import type { Secret } from "../kernel/secret.ts";

const perClass = z.object({ interactive: z.number(), system: z.number(), batch: z.number() });

/** What is read of `/health`; anything else there may change without this noticing. */
const healthPage = z.object({
  version: z.string(),
  started_at: z.string(),
  coordination: z.object({
    mode: z.enum(["local", "redis"]),
    state: z.string(),
    reason: z.string().nullish(),
  }),
  upstreams: z.array(
    z.object({
      id: z.string(),
      kind: z.string(),
      models: z.array(z.string()),
      available: z.boolean(),
      reason: z.string().nullish(),
      slots: z.number(),
      batch_max: z.number(),
      in_use: perClass,
      queue: z.object({ waiting: perClass }),
      /** Null where slots are not shared. */
      sharing: z.object({ held: z.number(), settling: z.boolean() }).nullable(),
      endpoints: z.array(z.object({ in_flight: z.number() })),
    }),
  ),
});

export type VerifiedHealth = z.output<typeof healthPage>;
export type VerifiedUpstream = VerifiedHealth["upstreams"][number];

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly ms: number;
}

export interface VerifyPorts {
  readonly base: string;
  /** May read `/health`. */
  readonly operatorKey: Secret | undefined;
  /** Sends the calls. */
  readonly clientKey: Secret | undefined;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

const ANSWER_MS_MAX = 120_000;
const LOOK_MS_MAX = 5_000;

/** A gateway as its callers see it. A connection that fails rejects. */
export class VerifiedGateway {
  readonly #ports: VerifyPorts;

  constructor(ports: VerifyPorts) {
    this.#ports = ports;
  }

  get clock(): Clock {
    return this.#ports.clock;
  }

  get signal(): AbortSignal {
    return this.#ports.signal;
  }

  async health(): Promise<VerifiedHealth> {
    const answer = await this.#send("GET", "/health", this.#ports.operatorKey, undefined, {}, LOOK_MS_MAX);
    if (answer.status !== 200) throw new Error(`/health answered ${answer.status} ${codeOf(answer.text)}`);
    return healthPage.parse(JSON.parse(answer.text));
  }

  ready(): Promise<Answer> {
    return this.#send("GET", "/readyz", undefined, undefined, {}, LOOK_MS_MAX);
  }

  get(path: string): Promise<Answer> {
    return this.#send("GET", path, this.#ports.clientKey, undefined, {}, ANSWER_MS_MAX);
  }

  post(path: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    return this.#send("POST", path, this.#ports.clientKey, body, headers, ANSWER_MS_MAX);
  }

  /** A short chat, read to its end. */
  chat(model: string, tokens: number, requestClass?: RequestClass): Promise<Answer> {
    const headers: Record<string, string> = requestClass === undefined ? {} : { "x-yardmaster-class": requestClass };
    return this.post("/v1/chat/completions", chatBody(model, tokens, true), headers);
  }

  sleep(ms: number): Promise<void> {
    return this.#ports.clock.sleep(ms, this.#ports.signal);
  }

  async #send(
    method: string,
    path: string,
    key: Secret | undefined,
    body: unknown,
    headers: Readonly<Record<string, string>>,
    msMax: number,
  ): Promise<Answer> {
    const { base, clock, signal } = this.#ports;
    using deadline = withDeadline(clock, msMax, signal);
    const startedAt = clock.mono();
    const response = await fetch(base + path, {
      method,
      redirect: "manual", // Elsewhere is no place for a key.
      signal: deadline.signal,
      headers: {
        ...(key === undefined ? {} : { authorization: `Bearer ${key.reveal()}` }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, ms: clock.mono() - startedAt };
  }
}

export const chatBody = (model: string, tokens: number, stream: boolean): Record<string, unknown> => ({
  model,
  stream,
  max_tokens: tokens,
  messages: [{ role: "user", content: "Count upwards from one, in words." }],
});

/** The stable code of an error answer, or nothing. */
export const codeOf = (text: string): string => /"code":\s*"([A-Z_]+)"/.exec(text)?.[1] ?? "";

export const inUse = (upstream: VerifiedUpstream): number =>
  REQUEST_CLASSES.reduce((sum, name) => sum + upstream.in_use[name], 0);

/** Leases where slots are shared, else the slots themselves. */
export const held = (upstream: VerifiedUpstream): number => upstream.sharing?.held ?? inUse(upstream);

export const queuedMs = (answer: Answer): number | undefined => {
  const told = answer.headers.get("x-yardmaster-queue-ms");
  return told === null ? undefined : Number(told);
};
