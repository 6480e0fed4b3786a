import type { IncomingMessage } from "node:http";
import type { LookupFunction } from "node:net";
import type { AnswerHead } from "../../decide/weights/file-transfer.ts";
import { isPublicAddress } from "../../decide/jobs/ip-address.ts";
import { judgeHop } from "../../decide/weights/judge-redirect.ts";
import type { Clock } from "../../kernel/clock.ts";
import { judgedLookup, type Resolve } from "../../kernel/judged-lookup.ts";
import { loadHttps, request as httpRequest } from "../../kernel/node-builtins.ts";

export interface WebPorts {
  readonly clock: Clock;
  readonly ca: string | undefined;
  readonly redirectTo: readonly string[];
  readonly resolve?: Resolve;
}

export interface WebRequest {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** Headers with the credential, for a URL of the same origin as the first. */
  readonly credential: (url: URL) => Readonly<Record<string, string>>;
}

export type WebAnswer =
  | { readonly kind: "answer"; readonly head: AnswerHead; readonly body: IncomingMessage }
  /** It will be no other next time. */
  | { readonly kind: "refused"; readonly why: string }
  | { readonly kind: "failed"; readonly why: string };

const HEAD_MS_MAX = 30_000;
const STALL_MS_MAX = 60_000;
const STALL_LOOK_MS = 5_000;
const HEADER_BYTES_MAX = 64 * 1024;
const NOT_PUBLIC = "the server redirects to an address that is not public";
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/**
 * Asks servers of weights.
 *
 * Invariants:
 *   W1. Each redirect is judged; a guarded one connects only to an address that was judged, in the very look-up that the
 *       connection uses.
 *   W2. No answer is waited for longer than HEAD_MS_MAX, no next byte of a body longer than STALL_MS_MAX.
 */
export class WebClient {
  readonly #ports: WebPorts;
  readonly #guardedLookup: LookupFunction;

  constructor(ports: WebPorts) {
    this.#ports = ports;
    this.#guardedLookup = judgedLookup(isPublicAddress, NOT_PUBLIC, ports.resolve);
  }

  /** The body is for the caller to read to its end, or to destroy. Rejects only when `signal` is aborted. */
  async ask({ url: first, headers, credential }: WebRequest, signal: AbortSignal): Promise<WebAnswer> {
    let [url, isOwn, guarded] = [first, true, false];
    for (let hops = 0; ; hops += 1) {
      signal.throwIfAborted();
      const sent = isOwn ? { ...headers, ...credential(url) } : headers;
      const answer = await this.#once(url, sent, guarded, signal);
      if (answer.kind !== "answer") return answer;
      const { location } = answer.body.headers;
      if (!REDIRECTS.has(answer.head.status) || location === undefined) return answer;
      answer.body.destroy();
      const hop = judgeHop(first, url, location, hops, this.#ports.redirectTo);
      if (hop.kind === "refused") return hop;
      ({ url, isOwn, guarded } = hop);
    }
  }

  #once(
    url: URL,
    headers: Readonly<Record<string, string>>,
    guarded: boolean,
    signal: AbortSignal,
  ): Promise<WebAnswer> {
    return new Promise((resolve, reject) => {
      const { ca, clock } = this.#ports;
      const send = url.protocol === "http:" ? httpRequest : loadHttps().request;
      const request = send(url, {
        headers: { "user-agent": "yardmaster", ...headers },
        agent: false,
        maxHeaderSize: HEADER_BYTES_MAX,
        signal,
        ...(guarded ? { lookup: this.#guardedLookup } : {}),
        ...(ca === undefined ? {} : { ca }),
      });
      const timer = clock.after(HEAD_MS_MAX, () => request.destroy(new Error(`no answer within ${HEAD_MS_MAX} ms`)));
      const failed = (why: string): void => {
        timer.cancel();
        if (signal.aborted) reject(signal.reason as Error);
        else resolve({ kind: "failed", why: `${url.host}: ${why}` });
      };
      request.on("error", (error) => failed(error.message));
      request.on("close", () => failed("the connection was closed"));
      request.on("response", (body) => {
        timer.cancel();
        resolve({ kind: "answer", head: { status: body.statusCode ?? 0, headers: body.headers }, body });
      });
      request.end();
    });
  }

  /** The parts of a body as they come. Throws when it breaks off, or nothing comes for STALL_MS_MAX. */
  async *parts(body: IncomingMessage): AsyncGenerator<Buffer> {
    const { clock } = this.#ports;
    let last = clock.mono();
    let timer = clock.after(STALL_LOOK_MS, look);
    function look(): void {
      if (clock.mono() - last > STALL_MS_MAX) body.destroy(new Error(`nothing came for ${STALL_MS_MAX / 1_000} s`));
      else timer = clock.after(STALL_LOOK_MS, look);
    }
    try {
      for await (const part of body) {
        yield part as Buffer;
        last = clock.mono();
      }
    } finally {
      timer.cancel();
      body.destroy();
    }
  }

  /** A whole small body. Throws when it is larger than `bytesMax`, or breaks off. */
  async text(body: IncomingMessage, bytesMax: number): Promise<string> {
    const parts: Buffer[] = [];
    let bytes = 0;
    for await (const part of this.parts(body)) {
      bytes += part.length;
      if (bytes > bytesMax) throw new Error(`the answer is larger than ${bytesMax} bytes`);
      parts.push(part);
    }
    return Buffer.concat(parts).toString("utf8");
  }
}
