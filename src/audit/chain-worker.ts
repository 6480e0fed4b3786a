import { workerData } from "node:worker_threads";
import type { ChainEntry } from "../contract/audit-chain.ts";
import type { PurposeKey } from "../kernel/signer.ts";
import { serveThread } from "../kernel/serve-thread.ts";
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
const { path, keys } = workerData as ChainWorkerData;
let tables: ChainTables | undefined;

function answer(request: ChainRequest): unknown {
  if (request.kind === "close") return tables?.close();
  tables ??= new ChainTables(path, keys);
  if (request.kind === "append") return tables.append(request.run, request.firstOrdinal, request.entries);
  const { after, limit, first, now } = request;
  return tables.page(after, limit, first ?? Math.max(after + 1, tables.first()), now);
}

serveThread<ChainRequest>("chain-worker", answer, {
  onFailure: () => {
    try {
      tables?.close();
    } catch {
      // A handle that can't even be closed is left behind; the next request opens a new one.
    }
    tables = undefined;
  },
});
