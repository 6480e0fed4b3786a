import { parentPort, workerData } from "node:worker_threads";
import type { DocCommit } from "../overflow/doc-store.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { ThreadReply } from "../../kernel/thread-calls.ts";
import { DocTables } from "./doc-tables.ts";

export type DocRequest =
  | { readonly kind: "load"; readonly call: number; readonly names: readonly string[] }
  | { readonly kind: "commit"; readonly call: number; readonly commit: DocCommit; readonly now: number }
  | { readonly kind: "open"; readonly call: number; readonly of: string }
  | { readonly kind: "close"; readonly call: number };

/** The thread that owns the ledger's file: what waits for the disk there holds up nobody's stream. */
const port = parentPort;
if (port === null) throw new Error("doc-worker runs as a worker thread only");
const { path } = workerData as { readonly path: string };
let tables: DocTables | undefined;

function answer(request: DocRequest): unknown {
  if (request.kind === "close") return tables?.close();
  tables ??= new DocTables(path);
  switch (request.kind) {
    case "load":
      return tables.load(request.names);
    case "commit":
      return tables.commit(request.commit, request.now);
    case "open":
      return tables.open(request.of);
    default:
      return request satisfies never;
  }
}

port.on("message", (request: DocRequest) => {
  let reply: ThreadReply;
  try {
    reply = { kind: "done", call: request.call, value: answer(request) };
  } catch (error) {
    reply = { kind: "failed", call: request.call, why: messageOf(error) };
  }
  port.postMessage(reply);
  if (request.kind === "close") port.close();
});
