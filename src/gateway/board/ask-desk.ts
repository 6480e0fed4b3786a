import type { RequestKey } from "../../access/request-key.ts";
import { type Ask, ANSWER_TEXT_CHARS_MAX, ASKS_MAX } from "../../contract/feed-board.ts";
import { CollectingClient, type CollectedEnd } from "../calls/collecting-client.ts";
import type { BoardPeer } from "../feed/feed-client.ts";
import type { ClientReply, ClientRequest } from "../http/client-port.ts";

export interface AskPorts {
  /** Where every request of a client goes. `vouched`: undefined where the request's own credential counts. */
  readonly onRequest: (req: ClientRequest, res: ClientReply, vouched: RequestKey | undefined) => void;
  readonly keyOf: (id: string, role: RequestKey["role"]) => RequestKey;
}

/** What of an answer's head is told on. */
const HEADERS: ReadonlySet<string> = new Set([
  "content-type",
  "retry-after",
  "x-request-id",
  "x-yardmaster-endpoint",
  "x-yardmaster-queue-ms",
]);
const ANSWER_BYTES_MAX = 4 * 1024 * 1024;

/**
 * Requests of a control plane to this gateway's own routes. Each is a client in memory that goes through the dispatcher like any other:
 * the same table of routes and roles, the same limits, the same record.
 *
 * Invariants:
 *   D1. A connection has at most `ASKS_MAX` of them, and they end with it.
 *   D2. Every ask is answered by one `answerEnd`, unless its connection ended.
 */
export class AskDesk {
  readonly #peer: BoardPeer;
  readonly #ports: AskPorts;
  readonly #running = new Map<number, CollectingClient>();

  constructor(peer: BoardPeer, ports: AskPorts) {
    this.#peer = peer;
    this.#ports = ports;
  }

  ask(ask: Ask): void {
    if (this.#running.size >= ASKS_MAX || this.#running.has(ask.n)) {
      this.#peer.send({ type: "answerEnd", n: ask.n, outcome: "busy" });
      return;
    }
    const decoder = new TextDecoder();
    let streamed = false;
    const client = new CollectingClient({
      method: ask.method,
      target: ask.target,
      rawHeaders: headersOf(ask),
      ...(ask.body === null ? {} : { body: Buffer.from(ask.body) }),
      bytesMax: Math.min(ask.bytesMax, ANSWER_BYTES_MAX),
      onHead: (status, headers) => this.#tellHead(ask.n, status, headers),
      onProgress: (payload) => {
        streamed = true;
        this.#tellText(ask.n, decoder.decode(payload, { stream: true }));
      },
      onEnd: (end) => {
        if (!this.#running.delete(ask.n)) return;
        const rest = streamed || !("body" in end) ? decoder.decode() : end.body.toString("utf8");
        this.#tellText(ask.n, rest);
        this.#peer.send({ type: "answerEnd", n: ask.n, outcome: OUTCOMES[end.kind] });
      },
    });
    this.#running.set(ask.n, client);
    const vouched = ask.credential === null ? this.#ports.keyOf(ask.keyId, ask.role) : undefined;
    this.#ports.onRequest(client, client, vouched);
  }

  /** Nobody waits for it any more. */
  leave(n: number): void {
    const client = this.#running.get(n);
    this.#running.delete(n);
    client?.abort();
  }

  close(): void {
    for (const n of this.#running.keys()) this.leave(n);
  }

  #tellHead(n: number, status: number, rawHeaders: readonly string[]): void {
    const headers: Record<string, string> = {};
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      const name = (rawHeaders[at] ?? "").toLowerCase();
      if (HEADERS.has(name)) headers[name] = (rawHeaders[at + 1] ?? "").slice(0, 1_024);
    }
    if (this.#running.has(n) && !this.#peer.send({ type: "answerHead", n, status, headers })) this.leave(n);
  }

  #tellText(n: number, text: string): void {
    for (let at = 0; at < text.length; at += ANSWER_TEXT_CHARS_MAX) {
      const part = text.slice(at, at + ANSWER_TEXT_CHARS_MAX);
      // A control plane that takes nothing is not waited for.
      if (!this.#peer.send({ type: "answerText", n, text: part })) return this.leave(n);
    }
  }
}

const OUTCOMES: Readonly<Record<CollectedEnd["kind"], "whole" | "broken" | "tooLarge">> = {
  whole: "whole",
  refused: "whole",
  brokenOff: "broken",
  aborted: "broken",
  tooLarge: "tooLarge",
};

function headersOf({ body, credential }: Ask): string[] {
  const headers = ["host", "gateway", "accept", "*/*"];
  if (body !== null)
    headers.push("content-type", "application/json", "content-length", String(Buffer.byteLength(body)));
  if (credential !== null) headers.push("authorization", `Bearer ${credential}`);
  return headers;
}
