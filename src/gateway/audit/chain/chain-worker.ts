import { parentPort, workerData } from "node:worker_threads";
import type { ChainEntry } from "../../../contract/audit-chain.ts";
import { messageOf } from "../../../kernel/errors.ts";
import type { PurposeKey } from "../../../kernel/signer.ts";
import type { ThreadReply } from "../../../kernel/thread-calls.ts";
import { ChainTables } from "./chain-tables.ts";

export type ChainRequest =
  | {
      readonly kind: "append";
      readonly call: number;
      readonly run: string;
      readonly firstOrdinal: number;
      readonly entries: readonly ChainEntry[];
    }
  | {
      readonly kind: "page";
      readonly call: number;
      readonly after: number;
      readonly limit: number;
      /** Null: the first that is there. */
      readonly first: number | null;
      readonly now: number;
    }
  | { readonly kind: "close"; readonly call: number };

export interface ChainWorkerData {
  readonly path: string;
  readonly keys: readonly PurposeKey[];
}

/** The thread that owns the file of the audit's chain. It opens it at the first request and again after any error. */
const port = parentPort;
if (port === null) throw new Error("chain-worker runs as a worker thread only");
const { path, keys } = workerData as ChainWorkerData;
let tables: ChainTables | undefined;

function answer(request: ChainRequest): unknown {
  if (request.kind === "close") return tables?.close();
  tables ??= new ChainTables(path, keys);
  if (request.kind === "append") return tables.append(request.run, request.firstOrdinal, request.entries);
  const { after, limit, first, now } = request;
  return tables.page(after, limit, first ?? Math.max(after + 1, tables.first()), now);
}

port.on("message", (request: ChainRequest) => {
  let reply: ThreadReply;
  try {
    reply = { kind: "done", call: request.call, value: answer(request) };
  } catch (error) {
    try {
      tables?.close();
    } catch {
      // A handle that can't even be closed is left behind; the next request opens a new one.
    }
    tables = undefined;
    reply = { kind: "failed", call: request.call, why: messageOf(error) };
  }
  port.postMessage(reply);
  if (request.kind === "close") port.close();
});
