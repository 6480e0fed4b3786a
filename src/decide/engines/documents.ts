import type { EngineAdapter } from "./adapter.ts";
import { generic } from "./generic.ts";

/**
 * A container or service with Azure's Document Intelligence API. What was called off may run on there: v3.x has no request for
 * it, and what v4.0's deletes is the result.
 */
export const documentIntelligence: EngineAdapter = {
  ...generic,
  name: "document-intelligence",
  health: { path: "/ready", timeoutMs: 5_000, everyMs: 5_000 },
  stopsAbandoned: { streamed: false, nonStreamed: false },
  modelsPath: null,
};

/** An OCR engine that takes a document and answers with its text. */
export const ocr: EngineAdapter = { ...generic, name: "ocr", modelsPath: null };
