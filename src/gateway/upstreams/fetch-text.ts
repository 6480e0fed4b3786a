import type { Clock } from "../../kernel/clock.ts";
import type { UpstreamClient, UpstreamExchange, UpstreamFailure, UpstreamTarget } from "../upstream/port.ts";

export type Fetched =
  | { readonly kind: "answer"; readonly status: number; readonly rawHeaders: readonly string[]; readonly body: string }
  | {
      readonly kind: "failed";
      readonly failure: UpstreamFailure | "timeout" | "tooLarge";
      readonly message: string;
      readonly ours?: boolean;
    };

const PAGE_BYTES_MAX = 8 * 1024 * 1024;

/** One small GET for the gateway's own use: health, metrics, model lists. Never rejects. */
export function fetchText(
  client: UpstreamClient,
  clock: Clock,
  target: UpstreamTarget,
  path: string,
  options: { readonly headers: readonly string[]; readonly timeoutMs: number; readonly freshConnection?: boolean },
): Promise<Fetched> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let bytes = 0;
    let status = 0;
    let rawHeaders: readonly string[] = [];
    const finish = (fetched: Fetched): void => {
      timer.cancel();
      resolve(fetched);
    };
    const giveUp = (failure: "timeout" | "tooLarge", message: string): void => {
      exchange.abort();
      finish({ kind: "failed", failure, message });
    };
    const timer = clock.after(options.timeoutMs, () => giveUp("timeout", `no answer within ${options.timeoutMs} ms`));
    const exchange: UpstreamExchange = client.exchange(
      target,
      {
        method: "GET",
        path,
        headers: options.headers,
        body: [],
        bodyBytes: undefined,
        freshConnection: options.freshConnection === true,
      },
      {
        onInformational: () => {},
        onHead: (head) => {
          status = head.status;
          rawHeaders = head.rawHeaders;
          return false;
        },
        onData: (payload) => {
          bytes += payload.length;
          if (bytes > PAGE_BYTES_MAX) giveUp("tooLarge", "the page is larger than 8 MiB");
          else parts.push(Buffer.from(payload));
          return true;
        },
        onChunks: () => "done",
        onEnd: () => finish({ kind: "answer", status, rawHeaders, body: Buffer.concat(parts).toString("utf8") }),
        onError: ({ kind: failure, message, ours = false }) => finish({ kind: "failed", failure, message, ours }),
      },
    );
  });
}
