import { parentPort } from "node:worker_threads";
import { messageOf } from "./errors.ts";
import type { ThreadReply } from "./thread-calls.ts";

interface ThreadServing {
  /** Memory of a value that changes hands instead of being copied. */
  readonly give?: (value: unknown) => ArrayBuffer[];
  /** Before a failure is told. */
  readonly onFailure?: () => void;
}

/** The other side of `ThreadCalls`: answers each request in its turn, and ends after the one that closes. */
export function serveThread<Request extends { readonly kind: string; readonly call: number }>(
  name: string,
  answer: (request: Request) => unknown,
  { give = () => [], onFailure = () => {} }: ThreadServing = {},
): void {
  const port = parentPort;
  if (port === null) throw new Error(`${name} runs as a worker thread only`);
  port.on("message", (request: Request) => {
    let reply: ThreadReply;
    try {
      reply = { kind: "done", call: request.call, value: answer(request) };
    } catch (error) {
      onFailure();
      reply = { kind: "failed", call: request.call, why: messageOf(error) };
    }
    port.postMessage(reply, reply.kind === "done" ? give(reply.value) : []);
    if (request.kind === "close") port.close();
  });
}
