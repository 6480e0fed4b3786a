import type { IncomingHttpHeaders } from "node:http";
import type { CloudTask, TaskState } from "./cloud-ledger.ts";
import type { CloudAction } from "./cloud-script.ts";

export interface Page {
  readonly status: number;
  readonly body: unknown;
}

export type CloudAsk =
  | { readonly kind: "submit"; readonly idempotencyKey: string | null }
  | { readonly kind: "look"; readonly id: string }
  /** By the key of its submission. */
  | { readonly kind: "find"; readonly key: string }
  /** Where a file is, which a result names in place of its address. */
  | { readonly kind: "place"; readonly id: string }
  | { readonly kind: "cancel"; readonly id: string };

export type RefusalKind = Extract<
  NonNullable<CloudAction["submit"]>,
  "rateLimited" | "unavailable" | "serverError" | "badRequest" | "badKey" | "noMoney" | "policy" | "errorInside"
>;

export interface Told {
  readonly task: CloudTask;
  readonly state: TaskState;
  /** Address of the result. */
  readonly url: string;
  /** In units of the currency; a script may say anything here. */
  readonly charged: unknown;
}

/** One cloud's API, in its own words. */
export interface CloudDialect {
  /** Undefined: no such page. */
  readonly read: (method: string, url: URL, headers: IncomingHttpHeaders, body: string) => CloudAsk | undefined;
  readonly authorized: (headers: IncomingHttpHeaders) => boolean;
  /** Of a submission that was taken; `told.state` matters to a service that answers at once. */
  readonly accepted: (told: Told) => Page;
  readonly view: (told: Told) => Page;
  readonly placed: (told: Told) => Page;
  readonly refused: (kind: RefusalKind) => Page;
  readonly unknownTask: () => Page;
  /** Whether a known key gives the task that has it. */
  readonly dedupes: boolean;
}

export const parsed = (body: string): Record<string, unknown> => {
  try {
    return JSON.parse(body) as Record<string, unknown>;
  } catch {
    return {};
  }
};

export const page = (status: number, body: unknown): Page => ({ status, body });
