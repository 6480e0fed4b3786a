import type { UpstreamSettings } from "../../../contract/gateway-config.ts";
import { readAnalyzeTarget } from "../../../decide/facades/azure/analyze-paths.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { withoutHeaders } from "../../calls/answer-headers.ts";
import type {
  UpstreamClient,
  UpstreamExchange,
  UpstreamHandler,
  UpstreamRequest,
  UpstreamTarget,
} from "../../upstream/port.ts";
import { ContainerExchange } from "./container-exchange.ts";
import { OcrExchange } from "./ocr-exchange.ts";

/** What speaks to the analyzers of an upstream of documents; null for one of another kind. */
export const analyzerClient = (
  settings: UpstreamSettings,
  client: UpstreamClient,
  clock: Clock,
): UpstreamClient | null => (settings.kind === "azure-di" ? new AnalyzerClient(settings, client, clock) : null);

const SERVICE_PATH = /\/(?:documentintelligence|formrecognizer)\/documentModels\//;

/**
 * Makes one exchange of all that the analysis of a document takes, so that admission, routing, retries and limits see a call
 * as any other: it holds its slot for as long as the analyzer is at work.
 */
class AnalyzerClient implements UpstreamClient {
  readonly #settings: UpstreamSettings;
  readonly #client: UpstreamClient;
  readonly #clock: Clock;

  constructor(settings: UpstreamSettings, client: UpstreamClient, clock: Clock) {
    this.#settings = settings;
    this.#client = client;
    this.#clock = clock;
  }

  exchange(target: UpstreamTarget, request: UpstreamRequest, handler: UpstreamHandler): UpstreamExchange {
    const { engine, ocrPath, engineKey } = this.#settings;
    const plain = {
      ...request,
      headers: headersFor(request.headers, engine === "ocr" ? undefined : engineKey?.reveal()),
    };
    const from = request.path.search(SERVICE_PATH);
    const [path = "", query = ""] = request.path.slice(Math.max(0, from)).split("?", 2);
    const analyze = from < 0 || request.method !== "POST" ? undefined : readAnalyzeTarget(path, `?${query}`);
    if (analyze?.kind !== "ok") return this.#client.exchange(target, plain, handler);
    const submission = { target, request: plain, basePath: request.path.slice(0, from), analyze: analyze.value };
    return engine === "ocr"
      ? new OcrExchange(this.#client, this.#clock, submission, ocrPath, handler)
      : new ContainerExchange(this.#client, this.#clock, submission, handler);
  }

  closeOrigin(origin: string): void {
    this.#client.closeOrigin(origin);
  }

  close(): void {
    this.#client.close();
  }

  counts(): { readonly open: number; readonly idle: number } {
    return this.#client.counts();
  }
}

const ENCODING: ReadonlySet<string> = new Set(["accept-encoding"]);
const ENCODING_AND_KEY: ReadonlySet<string> = new Set([...ENCODING, "authorization"]);

/** The service's own header for its key. Answers are read here, so none is asked for in another encoding. */
function headersFor(headers: readonly string[], subscriptionKey: string | undefined): string[] {
  const kept = withoutHeaders(headers, subscriptionKey === undefined ? ENCODING : ENCODING_AND_KEY);
  kept.push("accept-encoding", "identity");
  if (subscriptionKey !== undefined) kept.push("ocp-apim-subscription-key", subscriptionKey);
  return kept;
}
