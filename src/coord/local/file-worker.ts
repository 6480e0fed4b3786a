import { workerData } from "node:worker_threads";
import type { FileLimits } from "../files/file-store.ts";
import { serveThread } from "../../kernel/serve-thread.ts";
import { FileTables } from "./file-tables.ts";

export type FileOperations = Omit<FileTables, "close">;
export type FileOperation = keyof FileOperations;

export interface FileWorkerData {
  readonly path: string;
  readonly limits: FileLimits;
}

export type FileRequest =
  | { readonly kind: "call"; readonly call: number; readonly op: FileOperation; readonly args: readonly unknown[] }
  | { readonly kind: "open"; readonly call: number }
  | { readonly kind: "close"; readonly call: number };

/** The thread that owns the database of files: what waits for the disk there holds up nobody's stream. */
const { path, limits } = workerData as FileWorkerData;
let tables: FileTables | undefined;

function answer(request: FileRequest): unknown {
  if (request.kind === "close") {
    tables?.close();
    tables = undefined;
    return null;
  }
  tables ??= new FileTables(path, limits);
  if (request.kind === "open") return null;
  const operation = tables[request.op] as (this: FileTables, ...args: readonly unknown[]) => unknown;
  const value = operation.call(tables, ...request.args);
  // Pieces that were given to this thread are on the disk now; waiting for the collector they would be a hundred megabytes.
  for (const arg of request.args)
    if (arg instanceof Uint8Array && arg.buffer instanceof ArrayBuffer) arg.buffer.transfer(0);
  return value;
}

serveThread<FileRequest>("file-worker", answer, {
  // The bytes of a piece are its own memory: they change hands.
  give: (value) => (value instanceof Uint8Array && value.buffer instanceof ArrayBuffer ? [value.buffer] : []),
});
