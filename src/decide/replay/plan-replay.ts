import type { UpstreamSettings } from "../../contract/gateway-config.ts";

/** Which memories of answers a request has to do with. */
export interface ReplayPlan {
  readonly idempotencyKey: string | null;
  /**
   * `use`: look, and keep. `refresh`: keep in the place of what is there, without looking. `seeded`: as `use` where the body asks
   * for the same answer each time. `bypass`: neither; the answer says so. `off`: there is no cache.
   */
  readonly cache: "use" | "refresh" | "seeded" | "seededRefresh" | "bypass" | "off";
  /** Refusals of this content may be remembered. */
  readonly refusals: "use" | "refresh" | "off";
}

export interface ReplayFacts {
  readonly method: string;
  /** As the engine is asked. */
  readonly path: string;
  readonly idempotencyKey: string | null;
  /** The client's `Cache-Control` and `Pragma`. */
  readonly cacheControl: string | undefined;
  readonly pragma: string | undefined;
  /** Asks for something in its answer that is for this request alone. */
  readonly personal: boolean;
}

/** Whether the answer to the same body is the same: always, when the body says so, or never for all that is known. */
const SAME_ANSWER: Readonly<Record<string, "always" | "seeded">> = {
  "/v1/chat/completions": "seeded",
  "/v1/completions": "seeded",
  "/v1/messages": "seeded",
  "/v1/responses": "seeded",
  "/v1/embeddings": "always",
  "/v1/rerank": "always",
  "/v1/score": "always",
  "/v1/classify": "always",
  "/v1/moderations": "always",
  "/v1/tokenize": "always",
  "/v1/detokenize": "always",
  "/v1/messages/count_tokens": "always",
};

/** Whether an upstream keeps anything of its answers. */
export const remembers = ({ cache, refusals }: Pick<UpstreamSettings, "cache" | "refusals">): boolean =>
  cache !== null || refusals.length > 0;

/** Null for the usual request, which has to do with none of them. */
export function planReplay(
  facts: ReplayFacts,
  settings: Pick<UpstreamSettings, "kind" | "cache" | "refusals">,
): ReplayPlan | null {
  const { kind, cache, refusals } = settings;
  if (facts.method !== "POST") return null;
  if (facts.idempotencyKey === null && !remembers(settings)) return null;
  const asked = askedOf(facts);
  // Whoever sets a cache on an upstream of another kind (OCR, layout) says that its answers depend on the request alone.
  const same = kind === "http" || kind === "azure-di" ? "always" : SAME_ANSWER[facts.path];
  const cached = cache === null ? "off" : asked === "noStore" || same === undefined ? "bypass" : same;
  return {
    idempotencyKey: facts.idempotencyKey,
    cache:
      cached === "always"
        ? asked === "noCache"
          ? "refresh"
          : "use"
        : cached === "seeded" && asked === "noCache"
          ? "seededRefresh"
          : cached,
    refusals: refusals.length === 0 || asked === "noStore" ? "off" : asked === "noCache" ? "refresh" : "use",
  };
}

function askedOf({ cacheControl, pragma, personal }: ReplayFacts): "usual" | "noCache" | "noStore" {
  if (personal) return "noStore";
  const directives = (cacheControl ?? "").toLowerCase().split(",");
  const says = (name: string): boolean => directives.some((directive) => directive.trim().split("=")[0] === name);
  if (says("no-store")) return "noStore";
  const stale = directives.some((directive) => /^\s*max-age\s*=\s*"?0+"?\s*$/.test(directive));
  if (says("no-cache") || stale) return "noCache";
  return cacheControl === undefined && (pragma ?? "").toLowerCase().includes("no-cache") ? "noCache" : "usual";
}

/** Whether a body asks for the same answer each time: temperature 0, or a seed, said in so many words. */
export const asksForSameAnswer = (temperature: string | undefined, seed: string | undefined): boolean =>
  (temperature !== undefined && /^-?0(?:\.0*)?(?:[eE][+-]?[0-9]+)?$/.test(temperature)) ||
  (seed !== undefined && /^-?[0-9]+$/.test(seed));
