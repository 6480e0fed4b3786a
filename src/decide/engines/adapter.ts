import type { EngineName } from "../../contract/gateway-config.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { JsonObject } from "../http/token-usage.ts";
import type { Sample } from "../telemetry/prometheus-text.ts";

/** What an engine reports of itself. A field is `undefined` when its page does not name it: never zero, never guessed. */
export interface EngineLoad {
  readonly running: number | undefined;
  readonly waiting: number | undefined;
  /** Share of the KV cache in use, 0 to 1; of the fullest rank. */
  readonly kvUse: number | undefined;
  /** A counter that moves with every step of the engine, prefill included. */
  readonly steps: number | undefined;
  /** Tokens generated since the engine's start. */
  readonly tokens: number | undefined;
  /** Prompt tokens looked up in the prefix cache, and found there, since the engine's start. */
  readonly prefixQueries: number | undefined;
  readonly prefixHits: number | undefined;
}

export const NO_LOAD: EngineLoad = {
  running: undefined,
  waiting: undefined,
  kvUse: undefined,
  steps: undefined,
  tokens: undefined,
  prefixQueries: undefined,
  prefixHits: undefined,
};

/** "noPage": something answers, but not as a health page does: alive, and no more is known. */
export type HealthReading = "healthy" | "loading" | "unhealthy" | "noPage";

/**
 * engineDead, shuttingDown: this engine serves nothing any more; overloaded: it is well, but can't take this now (full, or still
 * loading); noMoney: nothing more is done for this account, whoever asks; clientFault: the request's own fault, the same anywhere, and no sign against the engine; engineFault: it failed.
 */
export type EngineErrorKind = "engineDead" | "shuttingDown" | "overloaded" | "noMoney" | "clientFault" | "engineFault";

export interface RerankTranslation {
  /** The engine's request for a Cohere- or Jina-like one. */
  request(
    body: JsonObject,
  ): { readonly kind: "translated"; readonly body: JsonObject } | { readonly kind: "invalid"; readonly why: string };
  /** The Cohere- or Jina-like answer for the engine's; `undefined` when the answer is not what the engine should send. */
  answer(answer: unknown, request: JsonObject, id: string): JsonObject | undefined;
}

/** All that is known of one kind of engine. Pure: paths and readings, no calls. */
export interface EngineAdapter {
  readonly name: EngineName;
  readonly health: { readonly path: string; readonly timeoutMs: number; readonly everyMs: number } | null;
  readHealth(status: number, body: string): HealthReading;
  /** Asked with METRICS_ACCEPT. `null`: the engine has no page. */
  readonly metricsPath: string | null;
  readLoad(samples: readonly Sample[]): EngineLoad;
  /** Of a page that is none of metrics; undefined where it can't be read. Absent: `metricsPath` is a page of metrics. */
  readonly readLoadPage?: (body: string) => EngineLoad | undefined;
  /** Share of the card's memory in use, 0 to 1, by the health page. Absent: it doesn't say. */
  readonly readMemoryUse?: (healthBody: string) => number | undefined;
  /** False: it has one line of its own for everybody, so work of others takes none of our slots. Absent: true. */
  readonly othersTakeSlots?: false;
  /** Whether the engine stops when its client has gone. */
  readonly stopsAbandoned: { readonly streamed: boolean; readonly nonStreamed: boolean };
  /** The engine's own count of requests it works on. */
  readonly busyProbe: { readonly path: string; read(body: string): number | undefined } | null;
  /** Whether a `model` that the engine does not list is refused. */
  readonly refusesUnknownModels: boolean;
  /** The engine's path for one of the gateway's routes; a query is kept. */
  enginePath(routePath: string): string;
  /** For a complete error answer of which the client has seen nothing. */
  classifyError(status: number, body: string): EngineErrorKind;
  /** The body field that carries the class into the engine's own queue. */
  priorityField(requestClass: RequestClass): { readonly field: "priority"; readonly value: number } | null;
  readonly rerank: RerankTranslation | null;
  readonly modelsPath: string | null;
  /** Names that the engine serves, adapters (LoRA) and aliases too. `undefined` when the body is no such list. */
  readModels(body: string): readonly string[] | undefined;
  /** How to tell a running engine of this kind on its usual ports. Header names are in lower case. */
  readonly detect: {
    readonly path: string;
    readonly defaultPorts: readonly number[];
    matches(status: number, body: string, headers: Readonly<Record<string, string | undefined>>): boolean;
  } | null;
}

/** Other forms of the page rename metrics: OpenMetrics replaces the colon in their names. */
export const METRICS_ACCEPT = "text/plain;version=0.0.4";
