import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { LedgerMemory } from "../../coord/overflow/ledger.ts";
import { makeFolderSync } from "../../kernel/make-folder.ts";

/** Which life of the ledger this gateway has spent from, kept in the data folder apart from the ledger itself. One line. */
export function ledgerMemory(dataDir: string, kind: "local" | "redis"): LedgerMemory {
  const path = join(dataDir, `ledger-${kind}.epoch`);
  let known: string | null | undefined;
  return {
    read() {
      known ??= readEpoch(path);
      return known;
    },
    write(epoch) {
      makeFolderSync(dataDir);
      writeFileSync(`${path}.new`, `${epoch}\n`, { mode: 0o600 });
      renameSync(`${path}.new`, path);
      known = epoch;
    },
  };
}

function readEpoch(path: string): string | null {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return null; // None yet.
  }
}
