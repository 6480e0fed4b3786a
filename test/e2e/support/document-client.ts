import createClient, {
  getLongRunningPoller,
  isUnexpected,
  type AnalyzeOperationOutput,
  type DocumentIntelligenceClient,
} from "@azure-rest/ai-document-intelligence";

// The service's own client against a gateway.

export type Document =
  | { readonly bytes: Buffer; readonly contentType?: "application/pdf" | "image/png" }
  | { readonly base64Source: string }
  | { readonly urlSource: string };

export interface Submitted {
  readonly status: string;
  /** Of an accepted one. */
  readonly location: string;
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Of a refused one: the service's code, and ours. */
  readonly code: string;
  readonly ourCode: string;
  /** Until the operation has ended. Rejects as the client does for one that failed. */
  end(): Promise<AnalyzeOperationOutput>;
}

export interface ClientOptions {
  readonly key: string;
  readonly family?: "v4.0" | "v3.1";
}

const VERSIONS = { "v4.0": "2024-11-30", "v3.1": "2023-07-31" } as const;

export function documentClient(url: string, { key, family = "v4.0" }: ClientOptions): DocumentIntelligenceClient {
  return createClient(
    url,
    { key },
    {
      allowInsecureConnection: true,
      retryOptions: { maxRetries: 0 },
      apiVersion: VERSIONS[family],
      ...(family === "v4.0" ? {} : { endpoint: `${url}/formrecognizer` }),
    },
  );
}

export async function submitDocument(
  client: DocumentIntelligenceClient,
  document: Document,
  options: {
    readonly model?: string;
    readonly headers?: Record<string, string>;
    readonly query?: Record<string, string>;
  } = {},
): Promise<Submitted> {
  const path = client.path("/documentModels/{modelId}:analyze", options.model ?? "prebuilt-read");
  const more = {
    ...(options.headers === undefined ? {} : { headers: options.headers }),
    ...(options.query === undefined ? {} : { queryParameters: options.query }),
  };
  const initial =
    "bytes" in document
      ? await path.post({ ...more, contentType: document.contentType ?? "application/pdf", body: document.bytes })
      : await path.post({ ...more, contentType: "application/json", body: document });
  const refused = isUnexpected(initial) ? initial.body.error : undefined;
  return {
    status: initial.status,
    location: initial.headers["operation-location"] ?? "",
    headers: initial.headers,
    code: refused?.code ?? "",
    ourCode: refused?.innererror?.code ?? "",
    end: async () => {
      if (isUnexpected(initial)) throw new Error(`refused: ${initial.body.error.code}`);
      const poller = getLongRunningPoller(client, initial, { intervalInMs: 50 });
      return (await poller.pollUntilDone()).body as AnalyzeOperationOutput;
    },
  };
}
