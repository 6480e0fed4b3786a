import type { StartVerb } from "../../../contract/agent-link.ts";

/** What one start becomes on this node: an argument list, an environment, and how to tell that the engine can serve. */

export interface LaunchInput {
  readonly start: StartVerb;
  /** Where the engine listens; gateways reach it there. */
  readonly host: string;
  /** Null for a shard that opens no port. */
  readonly port: number | null;
  /** The model on this node's disk; null for a profile without a source. */
  readonly weights: string | null;
  /** Memory of the cards that the start names, null where it is not known. */
  readonly gpuMemoryMib: readonly (number | null)[];
  /** Program and leading arguments that this node has for the engine. */
  readonly program: readonly string[];
  /** Programs that the node's own configuration lets `command` profiles start. */
  readonly commands: readonly string[];
  /** A file with the engine's key that only its owner can read, for engines that take one. */
  readonly keyFile: string;
}

export interface Probe {
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>>;
}

/** How far a start has come, by what the engine writes: later markers come later. */
export type Markers = readonly RegExp[];

export type Readiness =
  | {
      readonly kind: "http";
      readonly healthPath: string;
      readonly healthTimeoutMs: number;
      /** While it serves; while it starts it is asked more often. */
      readonly healthEveryMs: number;
      /** One tiny real inference: the first that the engine does not refuse as unknown to it. Empty: health alone. */
      readonly probes: readonly Probe[];
    }
  /** A shard without a port of its own: it lives, and the head tells the rest. */
  | { readonly kind: "process" };

export interface Launch {
  readonly kind: "launch";
  /** Program first. Never a shell's text. */
  readonly argv: readonly string[];
  /** What is added to the few variables that every engine gets; may hold the engine's key. */
  readonly env: Readonly<Record<string, string>>;
  readonly readiness: Readiness;
  readonly markers: Markers;
}

export type LaunchPlan = Launch | { readonly kind: "refused"; readonly why: string };

export const refused = (why: string): LaunchPlan => ({ kind: "refused", why });

/** The shard whose port clients' requests go to. */
export const isHead = (start: StartVerb): boolean => start.shard.index === 0;

export const servedNames = (start: StartVerb): string[] => [start.model.name, ...start.model.aliases];

/** Lives by its `/health` page, and serves by one of the probes. */
export const healthReadiness = (
  probes: readonly Probe[],
  healthTimeoutMs = 5_000,
  healthEveryMs = healthTimeoutMs,
): Readiness => ({ kind: "http", healthPath: "/health", healthTimeoutMs, healthEveryMs, probes });

export const completionProbe = (model: string): Probe => ({
  path: "/v1/completions",
  body: { model, prompt: "Hi", max_tokens: 1, temperature: 0 },
});
export const chatProbe = (model: string): Probe => ({
  path: "/v1/chat/completions",
  body: { model, messages: [{ role: "user", content: "Hi" }], max_tokens: 1, temperature: 0 },
});
export const embeddingProbe = (model: string): Probe => ({ path: "/v1/embeddings", body: { model, input: "Hi" } });
export const rerankProbe = (model: string): Probe => ({
  path: "/v1/rerank",
  body: { model, query: "Hi", documents: ["Hello"] },
});
