import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { messageOf } from "../kernel/errors.ts";
import { makeFolderSync } from "../kernel/make-folder.ts";

export type FolderHold =
  | { readonly kind: "held"; readonly release: () => void }
  /** Another process has it. */
  | { readonly kind: "taken" }
  /** The folder can't be written, so nobody can hold it. */
  | { readonly kind: "unknown"; readonly why: string };

const SQLITE_BUSY = 5;

/**
 * Keeps a second process of the role out of a data folder. What is held is the kernel's lock on an SQLite file without content: it ends
 * with the process, however that ends, and holds between containers of one host too, where process ids would say nothing.
 */
export function holdFolder(dataDir: string, role: string): FolderHold {
  let file: DatabaseSync | undefined;
  try {
    makeFolderSync(dataDir);
    const held = new DatabaseSync(join(dataDir, `${role}.lock`), { timeout: 0 });
    file = held;
    held.exec("BEGIN EXCLUSIVE");
    return { kind: "held", release: () => held.close() };
  } catch (error) {
    file?.close();
    if ((error as { readonly errcode?: number }).errcode === SQLITE_BUSY) return { kind: "taken" };
    return { kind: "unknown", why: messageOf(error) };
  }
}
