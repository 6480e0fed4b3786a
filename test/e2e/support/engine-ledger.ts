import type { LedgerCounts } from "../../../src/sim-engine/ledger.ts";

const ledgerOf = (port: number): string => `http://127.0.0.1:${port}/sim/ledger`;

/** What an engine that is a process of its own tells of the calls that reached it. */
export async function readCounts(port: number): Promise<LedgerCounts> {
  return (await (await fetch(ledgerOf(port))).json()) as LedgerCounts;
}

/** Resolves when the engine has just begun to answer one more call. */
export async function untilBusy(port: number): Promise<void> {
  const { firstByte } = await readCounts(port);
  await (await fetch(`${ledgerOf(port)}/wait?firstByte=${firstByte + 1}`)).text();
}
