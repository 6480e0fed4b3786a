import { workerData } from "node:worker_threads";
import type { UsageFlush } from "../../decide/usage/usage-book.ts";
import { serveThread } from "../../kernel/serve-thread.ts";
import { USAGE_BOUNDS, type UsageAsk, type UsagePlaceRead } from "../usage/usage-store.ts";
import { UsageTables } from "./usage-tables.ts";

export type UsageRequest =
  | {
      readonly kind: "add";
      readonly call: number;
      readonly gateway: string;
      readonly flush: UsageFlush;
      readonly now: number;
    }
  | { readonly kind: "read"; readonly call: number; readonly ask: UsageAsk; readonly after: UsagePlaceRead | null }
  | { readonly kind: "close"; readonly call: number };

/** The thread that owns the file of what was used: what waits for the disk there holds up nobody's stream. */
const { path, keepDays } = workerData as { readonly path: string; readonly keepDays: number };
let tables: UsageTables | undefined;

function answer(request: UsageRequest): unknown {
  if (request.kind === "close") return tables?.close();
  tables ??= new UsageTables(path, keepDays, USAGE_BOUNDS);
  switch (request.kind) {
    case "add":
      return tables.add(request.gateway, request.flush, request.now);
    case "read":
      return tables.read(request.ask, request.after);
    default:
      return request satisfies never;
  }
}

serveThread<UsageRequest>("usage-worker", answer);
