import assert from "node:assert/strict";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { patientClock } from "../../testing/patient-clock.ts";
import { aLedger, anAsk, ledgerSuite } from "../overflow/ledger.conformance.ts";
import { LocalDocs } from "./local-docs.ts";

const folders: string[] = [];
after(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

async function aPath(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-ledger-"));
  folders.push(folder);
  return join(folder, "ledger.db");
}
const placeAt = (path: string) => ({ open: () => Promise.resolve(new LocalDocs(path, patientClock)) });

ledgerSuite("the embedded database", false, async () => placeAt(await aPath()));

test("a file of another program is left alone, and nothing is spent [80.O6]", async () => {
  const path = await aPath();
  await writeFile(path, "somebody's file, which is no database, and long enough to be looked at ".repeat(20));
  const ledger = await aLedger(placeAt(path));
  const refused = await ledger.reserve(anAsk("a"));
  assert.equal(refused.kind === "refused" && refused.lack, "ledger_away");
  await assert.rejects(ledger.spend([{ tier: "t" }]), { code: "OVERFLOW_LEDGER_UNAVAILABLE" });
  await ledger.close();
});

test("the file is its owner's alone", async () => {
  const path = await aPath();
  const ledger = await aLedger(placeAt(path));
  await ledger.reserve(anAsk("a"));
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  await ledger.close();
});
