import type { ClientRequest, IncomingMessage } from "node:http";
import { parseRetryAfter } from "../../../decide/http/retry-after.ts";
import { isPublicAddress, parseIp } from "../../../decide/jobs/ip-address.ts";
import type { CloudAnswer } from "../../../decide/overflow/providers/cloud-call.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { judgedLookup } from "../../../kernel/judged-lookup.ts";
import { loadHttps, request as httpRequest } from "../../../kernel/node-builtins.ts";

export interface CloudRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  /** For connection, request and the whole answer. */
  readonly timeoutMs: number;
  readonly bytesMax: number;
  /** The address was told by a stranger: it must be https and lead to public addresses alone. */
  readonly publicOnly: boolean;
}

export type CloudReply =
  | { readonly kind: "answer"; readonly answer: CloudAnswer }
  /** Certain: no byte of the request has left. */
  | { readonly kind: "notSent"; readonly why: string }
  /** The request, or a part of it, has left, and there is no whole answer. */
  | { readonly kind: "broken"; readonly why: string }
  | { readonly kind: "tooLarge" };

/**
 * One request on a connection of its own, never sent twice and never redirected. Never rejects. Not the client that engines are
 * spoken to with: here it must be certain whether a byte has left, and an address that a stranger told must be judged in the very
 * look-up that the connection uses.
 */
export function askCloud(clock: Clock, ask: CloudRequest, signal: AbortSignal): Promise<CloudReply> {
  const url = URL.parse(ask.url);
  if (url === null || (url.protocol !== "https:" && url.protocol !== "http:"))
    return Promise.resolve({ kind: "notSent", why: "the address can't be read" });
  const forbidden = ask.publicOnly ? whyForbidden(url) : undefined;
  if (forbidden !== undefined) return Promise.resolve({ kind: "notSent", why: forbidden });
  if (signal.aborted) return Promise.resolve({ kind: "notSent", why: "nobody waits for it any more" });
  return new Promise((resolve) => {
    let sent = false;
    const request = open(url, ask);
    const finish = (reply: CloudReply): void => {
      timer.cancel();
      signal.removeEventListener("abort", onAbort);
      resolve(reply);
      request.destroy();
    };
    const fail = (why: string): void => finish({ kind: sent ? "broken" : "notSent", why });
    const onAbort = (): void => fail("nobody waits for it any more");
    const timer = clock.after(ask.timeoutMs, () => fail(`no whole answer within ${ask.timeoutMs} ms`));
    signal.addEventListener("abort", onAbort, { once: true });
    request.on("socket", (socket) => {
      // Before its handshake is done nothing of the request goes out.
      socket.once(url.protocol === "https:" ? "secureConnect" : "connect", () => (sent = true));
    });
    request.on("error", (error) => fail(reasonOf(error)));
    request.on("close", () => fail("the connection was closed"));
    request.on("response", (response) => gatherAnswer(clock, response, ask.bytesMax, finish));
    request.end(ask.body ?? undefined);
  });
}

function open(url: URL, { method, headers, body, publicOnly }: CloudRequest): ClientRequest {
  const send = url.protocol === "https:" ? loadHttps().request : httpRequest;
  const length = body === null ? {} : { "content-length": String(Buffer.byteLength(body)) };
  return send(url, {
    method,
    headers: { accept: "application/json, */*;q=0.5", "accept-encoding": "identity", ...headers, ...length },
    agent: false,
    maxHeaderSize: 64 * 1024,
    ...(publicOnly ? { lookup: lookupPublic } : {}),
  });
}

function gatherAnswer(
  clock: Clock,
  response: IncomingMessage,
  bytesMax: number,
  finish: (reply: CloudReply) => void,
): void {
  const parts: Buffer[] = [];
  let bytes = 0;
  response.on("data", (part: Buffer) => {
    bytes += part.length;
    if (bytes > bytesMax) finish({ kind: "tooLarge" });
    else parts.push(part);
  });
  response.on("error", () => finish({ kind: "broken", why: "the answer broke off" }));
  response.on("end", () => {
    if (!response.complete) return finish({ kind: "broken", why: "the answer broke off" });
    const retryAfter = response.headers["retry-after"];
    finish({
      kind: "answer",
      answer: {
        status: response.statusCode ?? 0,
        contentType: response.headers["content-type"] ?? "application/octet-stream",
        retryAfterMs: retryAfter === undefined ? undefined : parseRetryAfter(retryAfter, clock.wall()),
        body: Buffer.concat(parts),
      },
    });
  });
}

function whyForbidden(url: URL): string | undefined {
  if (url.protocol !== "https:") return "an address that a place tells must be https";
  if (url.username !== "" || url.password !== "") return "an address that a place tells must name no user";
  const host = url.hostname.replace(/^\[|\]$/g, "");
  if (parseIp(host) !== undefined && !isPublicAddress(host)) return "the address that the place tells is not public";
  return undefined;
}

const lookupPublic = judgedLookup(isPublicAddress, "the name has an address that is not public");

/** Without the addresses that were tried. */
function reasonOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : error.message;
}
