import type { EndpointSettings } from "../../../contract/gateway-config.ts";
import type { Clock } from "../../../kernel/clock.ts";
import type { UpstreamClient, UpstreamFailure, UpstreamHead, UpstreamTarget } from "../../upstream/port.ts";

export interface SiteRequest {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly chunks?: readonly Buffer[];
  readonly bytesMax: number;
  readonly timeoutMs: number;
}

export type SiteReply =
  | { readonly kind: "answer"; readonly head: UpstreamHead; readonly chunks: readonly Buffer[] }
  | {
      readonly kind: "failed";
      readonly failure: UpstreamFailure | "timeout" | "tooLarge" | "aborted";
      readonly message: string;
    };

/** Of pages about prompts. The queue holds the whole graph of every user's. */
export const PAGE_BYTES_MAX = 64 * 1024 * 1024;
const PAGE_MS_MAX = 10_000;

/** One ComfyUI and the way to it. */
export class ComfySite {
  readonly target: UpstreamTarget;
  readonly basePath: string;
  /** With what lets us in. */
  readonly headers: readonly string[];
  readonly #client: UpstreamClient;
  readonly #clock: Clock;

  constructor(
    ports: { readonly client: UpstreamClient; readonly clock: Clock },
    place: { readonly target: UpstreamTarget; readonly basePath: string; readonly headers: readonly string[] },
  ) {
    ({ target: this.target, basePath: this.basePath, headers: this.headers } = place);
    this.#client = ports.client;
    this.#clock = ports.clock;
  }

  /** Never rejects. */
  ask(request: SiteRequest, signal: AbortSignal): Promise<SiteReply> {
    const { method, path, chunks = [], bytesMax, timeoutMs } = request;
    const bytes = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    const posts = method === "POST";
    return new Promise((resolve) => {
      const parts: Buffer[] = [];
      let held = 0;
      let head: UpstreamHead | null = null;
      const finish = (reply: SiteReply): void => {
        timer.cancel();
        signal.removeEventListener("abort", onAbort);
        resolve(reply);
      };
      const giveUp = (failure: "timeout" | "tooLarge" | "aborted", message: string): void => {
        exchange.abort();
        finish({ kind: "failed", failure, message });
      };
      const onAbort = (): void => giveUp("aborted", "nobody waits for it any more");
      const timer = this.#clock.after(timeoutMs, () => giveUp("timeout", `no answer within ${timeoutMs} ms`));
      const exchange = this.#client.exchange(
        this.target,
        {
          method,
          path: this.basePath + path,
          headers: posts ? [...this.headers, "content-type", "application/json"] : this.headers,
          body: chunks,
          bodyBytes: posts ? bytes : undefined,
          // A workflow must not be sent twice by a connection that closed in the moment of its use.
          freshConnection: posts,
        },
        {
          onInformational: () => {},
          onHead: (seen) => {
            head = seen;
            return false;
          },
          onData: (payload) => {
            held += payload.length;
            if (held > bytesMax) giveUp("tooLarge", `the answer is larger than ${bytesMax} bytes`);
            else parts.push(Buffer.from(payload));
            return true;
          },
          onChunks: () => "done",
          onEnd: () => {
            if (head !== null) finish({ kind: "answer", head, chunks: parts });
          },
          onError: (error) => finish({ kind: "failed", failure: error.kind, message: error.message }),
        },
      );
      signal.addEventListener("abort", onAbort, { once: true });
      if (signal.aborted) onAbort();
    });
  }

  /** A page's text; undefined where it can't be had. `failure`: told where there was no connection. */
  async page(path: string, signal: AbortSignal, timeoutMs = PAGE_MS_MAX): Promise<string | undefined> {
    const reply = await this.ask({ method: "GET", path, bytesMax: PAGE_BYTES_MAX, timeoutMs }, signal);
    return reply.kind === "answer" && reply.head.status === 200
      ? Buffer.concat(reply.chunks).toString("utf8")
      : undefined;
  }

  async post(path: string, body: unknown, signal: AbortSignal): Promise<SiteReply> {
    const chunks = [Buffer.from(JSON.stringify(body))];
    return this.ask({ method: "POST", path, chunks, bytesMax: PAGE_BYTES_MAX, timeoutMs: PAGE_MS_MAX }, signal);
  }
}

/** The same upstream's other ComfyUIs: where an earlier attempt of a job may have left its prompt. */
export function otherSites(site: ComfySite, endpoints: readonly EndpointSettings[]): readonly UpstreamPlace[] {
  return endpoints
    .filter(({ origin, basePath }) => origin !== site.target.origin || basePath !== site.basePath)
    .slice(0, OTHER_SITES_MAX)
    .map(({ origin, protocol, hostname, port, basePath }) => ({
      target: { origin, protocol, hostname, port, connectTimeoutMs: site.target.connectTimeoutMs },
      basePath,
      headers: withHost(site.headers, origin.slice(`${protocol}//`.length)),
    }));
}

const OTHER_SITES_MAX = 16;

interface UpstreamPlace {
  readonly target: UpstreamTarget;
  readonly basePath: string;
  readonly headers: readonly string[];
}

function withHost(headers: readonly string[], host: string): string[] {
  const changed = [...headers];
  for (let i = 0; i + 1 < changed.length; i += 2) if (changed[i]?.toLowerCase() === "host") changed[i + 1] = host;
  return changed;
}
