import { workerData } from "node:worker_threads";
import type { DocCommit } from "../overflow/doc-store.ts";
import { serveThread } from "../../kernel/serve-thread.ts";
import { DocTables } from "./doc-tables.ts";

export type DocRequest =
  | { readonly kind: "load"; readonly call: number; readonly names: readonly string[] }
  | { readonly kind: "commit"; readonly call: number; readonly commit: DocCommit; readonly now: number }
  | { readonly kind: "open"; readonly call: number; readonly of: string }
  | { readonly kind: "close"; readonly call: number };

/** The thread that owns the ledger's file: what waits for the disk there holds up nobody's stream. */
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

serveThread<DocRequest>("doc-worker", answer);
