import { parseEndpointUrl, resolveUpstream } from "../../contract/resolve-config.ts";
import { upstreamConfig } from "../../contract/config-schema.ts";
import { analyzerClient } from "../../gateway/facades/azure/analyzer-client.ts";
import { NetUpstreamClient } from "../../gateway/upstream/net-client.ts";
import type { UpstreamError, UpstreamExchange, UpstreamHead } from "../../gateway/upstream/port.ts";
import { systemClock } from "../../kernel/clock.ts";
import { TimerWheel } from "../../kernel/timer-wheel.ts";
import { within } from "../wait-for.ts";

/** What who waits for an exchange was told, in the end. */
export type Told =
  | { readonly kind: "answer"; readonly status: number; readonly rawHeaders: readonly string[]; readonly body: string }
  | { readonly kind: "error"; readonly failure: UpstreamError["kind"]; readonly message: string };

export interface AnalyseOptions {
  readonly url: string;
  readonly path?: string;
  readonly body?: Buffer | string;
  readonly contentType?: string;
  /** Further settings of the upstream, in the words of the file. */
  readonly upstream?: Record<string, unknown>;
  /** What stands in the environment. */
  readonly env?: Record<string, string>;
  /** Takes the answer this many bytes at a time, pausing between them. */
  readonly slowly?: boolean;
}

export interface Analysis {
  readonly told: Promise<Told>;
  readonly exchange: UpstreamExchange;
  /** How often it was told of work that goes on. */
  readonly signs: () => number;
  /** Calls that came after the end or the abort; none are allowed. */
  readonly late: () => number;
  abort(): void;
}

export const READ_V4 = "/documentintelligence/documentModels/prebuilt-read:analyze?api-version=2024-11-30";
export const READ_V3 = "/formrecognizer/documentModels/prebuilt-read:analyze?api-version=2023-07-31";

/** One document through the client of an upstream of kind `azure-di`, over real sockets and without a gateway. */
export function analyseThrough(options: AnalyseOptions): Analysis {
  const file = upstreamConfig.parse({
    id: "documents",
    kind: "azure-di",
    slots: 4,
    endpoints: [{ url: options.url }],
    ...options.upstream,
  });
  const settings = resolveUpstream(file, options.env ?? {});
  const address = parseEndpointUrl(options.url);
  const client = analyzerClient(
    settings,
    new NetUpstreamClient({ clock: systemClock, wheel: new TimerWheel(systemClock) }),
    systemClock,
  );
  if (address === undefined || client === null) throw new Error("no address of an analyzer");
  const body = Buffer.from(options.body ?? "%PDF-1.7 of the test");
  const ended = Promise.withResolvers<Told>();
  const parts: Buffer[] = [];
  let head: UpstreamHead | null = null;
  let over = false;
  let signs = 0;
  let late = 0;
  const end = (told: Told): void => {
    if (over) late += 1;
    over = true;
    ended.resolve(told);
  };
  const auth = settings.engineKey === null ? [] : ["authorization", `Bearer ${settings.engineKey.reveal()}`];
  const exchange = client.exchange(
    { ...address, connectTimeoutMs: 2_000 },
    {
      method: "POST",
      path: address.basePath + (options.path ?? READ_V4),
      headers: ["host", "analyzer", "content-type", options.contentType ?? "application/pdf", ...auth],
      body: [body],
      bodyBytes: body.length,
      freshConnection: false,
    },
    {
      onInformational: () => void (signs += 1),
      onHead: (seen) => {
        if (over) late += 1;
        head = seen;
        return false;
      },
      onData: (payload) => {
        if (over) late += 1;
        parts.push(Buffer.from(payload));
        if (options.slowly !== true) return true;
        setImmediate(() => exchange.resume());
        return false;
      },
      onChunks: () => "done",
      onEnd: () =>
        end({
          kind: "answer",
          status: head?.status ?? 0,
          rawHeaders: head?.rawHeaders ?? [],
          body: Buffer.concat(parts).toString("utf8"),
        }),
      onError: (error) => end({ kind: "error", failure: error.kind, message: error.message }),
    },
  );
  return {
    get told() {
      return within("the end of an analysis", ended.promise, 30_000);
    },
    exchange,
    signs: () => signs,
    late: () => late,
    abort: () => {
      over = true;
      exchange.abort();
    },
  };
}
