import type { EngineAdapter } from "../../decide/engines/adapter.ts";
import { isJsonObject, type JsonObject } from "../../decide/http/token-usage.ts";

/** Larger ones are refused: they are parsed in one go, and the process stands still for that long. */
const RERANK_BYTES_MAX = 8 * 1024 * 1024;

export type RerankRequest =
  /** The engine speaks the client's form. */
  | { readonly kind: "asItIs" }
  | { readonly kind: "translated"; readonly body: Buffer; readonly rewriteAnswer: (body: Buffer) => Buffer | null }
  | { readonly kind: "invalid"; readonly code: "BAD_REQUEST" | "BODY_TOO_LARGE"; readonly why: string };

/** The rerank request as an engine with a form of its own gets it, and the way back for its answer. */
export function translateRerank(
  adapter: EngineAdapter,
  path: string,
  chunks: readonly Buffer[],
  bytes: number,
  requestId: string,
): RerankRequest {
  const { rerank } = adapter;
  if (rerank === null || path !== "/v1/rerank") return { kind: "asItIs" };
  if (bytes > RERANK_BYTES_MAX)
    return {
      kind: "invalid",
      code: "BODY_TOO_LARGE",
      why: `a rerank request for this engine has at most ${RERANK_BYTES_MAX} bytes`,
    };
  const asked = parse(Buffer.concat(chunks));
  if (!isJsonObject(asked)) return { kind: "invalid", code: "BAD_REQUEST", why: "the body is not a JSON object" };
  const translated = rerank.request(asked);
  if (translated.kind === "invalid") return { kind: "invalid", code: "BAD_REQUEST", why: translated.why };
  return {
    kind: "translated",
    body: Buffer.from(JSON.stringify(translated.body)),
    rewriteAnswer: (body) => render(rerank.answer(parse(body), asked, requestId)),
  };
}

const render = (answer: JsonObject | undefined): Buffer | null =>
  answer === undefined ? null : Buffer.from(JSON.stringify(answer));

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    return undefined;
  }
}
