import type { Secret } from "../kernel/secret.ts";

export const PROVIDER_KINDS = ["minimax", "kling", "openai", "http"] as const;
export type ProviderKind = (typeof PROVIDER_KINDS)[number];

/** What a tier charges, in millionths of the currency for each unit. */
export interface ProviderPrice {
  readonly unit: "second" | "call" | "1kTokens";
  readonly micros: number;
  readonly currency: string;
}

/** One request of a place that is described by configuration. `{id}` in the path stands for the task's id. */
export interface TemplateStep {
  readonly method: string;
  readonly path: string;
}

/** How a place takes, tells of and hands out work. Each pointer is a JSON pointer (RFC 6901) into the answer's body. */
export interface ProviderTemplate {
  readonly submit: TemplateStep & { readonly idempotencyHeader: string | null; readonly taskId: string };
  readonly poll: TemplateStep & {
    readonly status: string;
    readonly running: readonly string[];
    readonly succeeded: readonly string[];
    readonly failed: readonly string[];
    readonly progress: string | null;
    readonly error: string | null;
    /** What it charged, in the price's currency. */
    readonly charged: string | null;
  };
  /** `url`: where the look's answer names the place of the result. Null: `path` gives it. */
  readonly result: { readonly url: string | null; readonly path: string | null };
  /** How a task is found by the key that it was submitted with; `{key}` in the path stands for it. */
  readonly find: (TemplateStep & { readonly taskId: string }) | null;
  readonly cancel: TemplateStep | null;
  /** Where an answer of status 200 names its error. */
  readonly error: string | null;
}

/** What an adapter needs to know of its tier. */
export interface ProviderSettings {
  readonly kind: ProviderKind;
  /** The model as the place calls it; null: the work's own. */
  readonly model: string | null;
  /** Without a slash at its end. */
  readonly baseUrl: string;
  readonly key: Secret | null;
  /** Kling signs its tokens with it. */
  readonly signingKey: Secret | null;
  /** Null: the place charges nothing. */
  readonly price: ProviderPrice | null;
  readonly template: ProviderTemplate | null;
  /** For a submission and its whole answer. */
  readonly submitMs: number;
  /** For one look, and for a cancellation. */
  readonly pollMs: number;
  /** For the bytes of a result. */
  readonly fetchMs: number;
}
