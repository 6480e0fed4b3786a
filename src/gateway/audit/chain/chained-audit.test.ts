import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import type { AuditEvent } from "../../../contract/audit-event.ts";
import type { ChainEntry } from "../../../contract/audit-chain.ts";
import { ChainCheck, type ChainVerdict } from "../../../decide/audit/chain-lines.ts";
import { systemClock } from "../../../kernel/clock.ts";
import { YardmasterError } from "../../../kernel/errors.ts";
import { silentLogger } from "../../../kernel/log.ts";
import { Secret } from "../../../kernel/secret.ts";
import { anAuditEvent } from "../../../testing/an-audit-event.ts";
import { patientClock } from "../../../testing/patient-clock.ts";
import { VirtualClock } from "../../../testing/virtual-clock.ts";
import { lazySigner } from "../../../audit/open-signer.ts";
import type { AuditSink } from "../audit-sink.ts";
import { openChain, type ChainStore } from "../../../audit/audit-chain.ts";
import { checkWith, sha256 } from "../../../audit/chain-tables.ts";
import { ChainedAudit } from "./chained-audit.ts";
import type { ChainedEvent } from "./chained-event.ts";

const money = (change: Partial<AuditEvent> = {}): ChainedEvent => ({
  ...anAuditEvent({ outcome: "money_charged", overflow: "t: 0.50 EUR", ...change }),
  chained: true,
});

interface Inner extends AuditSink {
  readonly events: AuditEvent[];
}

function anInner(): Inner {
  const events: AuditEvent[] = [];
  return {
    events,
    record: (event: AuditEvent) => void events.push(event),
    commit: (event: AuditEvent) => Promise.resolve(void events.push(event)),
    close: () => Promise.resolve(),
  } as unknown as Inner;
}

async function aFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), "yardmaster-chain-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

const onDisk = (
  dataDir: string,
  secrets: readonly Secret[] | null = null,
): { audit: ChainedAudit; chain: ChainStore } => {
  const signer = lazySigner(dataDir, secrets);
  const chain = openChain({ clock: patientClock, dataDir, signer });
  return { chain, audit: new ChainedAudit({ clock: systemClock, log: silentLogger, inner: anInner(), chain, signer }) };
};

async function verdictOf(chain: ChainStore, dataDir: string): Promise<ChainVerdict> {
  const { lines, seal } = await chain.page(0, 5_000, null);
  const check = new ChainCheck(sha256, checkWith((await lazySigner(dataDir, null)()).keysFor("audit chain")));
  for (const line of [...lines, seal ?? ""]) check.push(line);
  return check.end();
}

test("what administrators did and what was spent stands in a chain that goes on over restarts, in a file for its owner alone [80.C47 80.I10]", async () => {
  await using folder = await aFolder();
  const first = onDisk(folder.path);
  await first.audit.commit(money({ outcome: "money_committed" }));
  for (let index = 0; index < 20; index += 1) first.audit.record(money({ requestId: `job_${index}` }));
  first.audit.record(anAuditEvent());
  await first.audit.close();
  const second = onDisk(folder.path);
  await second.audit.commit(money({ method: "DELETE", route: "/admin/keys/alice", keyId: "boss", overflow: null }));
  assert.deepEqual(await verdictOf(second.chain, folder.path), {
    ...(await verdictOf(second.chain, folder.path)),
    kind: "whole",
    first: 1,
    last: 22,
  });
  const { lines } = await second.chain.page(21, 10, null);
  const entry = JSON.parse(lines[0] ?? "") as ChainEntry;
  assert.match(`${entry.who} ${entry.act}`, /^hmac:[0-9a-f]{24} DELETE \/admin\/keys\/hmac:[0-9a-f]{24}$/);
  assert.ok(!lines.join().includes("alice") && !lines.join().includes("boss"));
  await second.audit.close();
  for (const name of ["audit-chain.db", "signing.key"])
    assert.equal((await stat(join(folder.path, name))).mode & 0o077, 0, name);
});

test("without anything to record there is neither a file nor a secret", async () => {
  await using folder = await aFolder();
  const { audit } = onDisk(folder.path);
  audit.record(anAuditEvent());
  await audit.commit(anAuditEvent());
  await audit.close();
  await assert.rejects(stat(join(folder.path, "audit-chain.db")), { code: "ENOENT" });
  await assert.rejects(stat(join(folder.path, "signing.key")), { code: "ENOENT" });
});

const tampered: readonly [name: string, sql: string][] = [
  ["its last entry was taken out", "DROP TRIGGER chain_holds; DELETE FROM chain WHERE seq = 3"],
  ["its last entry was changed", "DROP TRIGGER chain_keeps; UPDATE chain SET line = replace(line, '0.50', '0.05')"],
  ["all was taken out", "DROP TRIGGER chain_holds; DELETE FROM chain"],
];
for (const [name, sql] of tampered)
  test(`a chain is not gone on with when ${name}: nothing is done that needs an entry [80.C47 80.D33 80.G18]`, async () => {
    await using folder = await aFolder();
    const first = onDisk(folder.path);
    for (let index = 0; index < 3; index += 1) await first.audit.commit(money());
    await first.audit.close();
    const db = new DatabaseSync(join(folder.path, "audit-chain.db"));
    db.exec(sql);
    db.close();
    const second = onDisk(folder.path);
    await assert.rejects(second.audit.commit(money()), { code: "AUDIT_UNAVAILABLE" });
    await assert.rejects(second.chain.page(0, 10, null), /not as it was left/);
    await second.audit.close();
  });

test("the file itself refuses that an entry is changed or taken out [80.C47]", async () => {
  await using folder = await aFolder();
  const { audit } = onDisk(folder.path);
  await audit.commit(money());
  await audit.close();
  const db = new DatabaseSync(join(folder.path, "audit-chain.db"));
  assert.throws(() => db.exec("UPDATE chain SET line = ''"), /never changed/);
  assert.throws(() => db.exec("DELETE FROM chain"), /never taken out/);
  db.close();
});

test("a secret that is another one, or is no secret, signs nothing [80.C47]", async () => {
  await using folder = await aFolder();
  const first = onDisk(folder.path);
  await first.audit.commit(money());
  await first.audit.close();
  const other = onDisk(folder.path, [new Secret("another-secret-0123456789abcdef0123456789")]);
  await assert.rejects(other.audit.commit(money()), { code: "AUDIT_UNAVAILABLE" });
  await other.audit.close();
  const none = onDisk(folder.path, []);
  await assert.rejects(none.audit.commit(money()), { code: "AUDIT_UNAVAILABLE" });
  await none.audit.close();
  const path = join(folder.path, "signing.key");
  const secret = await readFile(path, "utf8");
  await writeFile(path, "");
  const empty = onDisk(folder.path);
  await assert.rejects(empty.audit.commit(money()), { code: "AUDIT_UNAVAILABLE" });
  await empty.audit.close();
  await writeFile(path, secret);
  const again = onDisk(folder.path);
  await again.audit.commit(money());
  await again.audit.close();
});

/** A chain that fails when told so; a failed write may have been done all the same. */
class FlakyChain implements ChainStore {
  readonly entries: ChainEntry[] = [];
  away = false;
  doesItAnyway = false;
  #ordinal = 0;
  append(firstOrdinal: number, entries: readonly ChainEntry[]): Promise<void> {
    if (!this.away || this.doesItAnyway) {
      if (firstOrdinal > this.#ordinal) {
        assert.equal(firstOrdinal, this.#ordinal + 1);
        this.entries.push(...entries);
        this.#ordinal += entries.length;
      }
    }
    return this.away ? Promise.reject(new Error("away")) : Promise.resolve();
  }
  page = (): never => {
    throw new Error("unused");
  };
  close = (): Promise<void> => Promise.resolve();
}

function flaky(): { clock: VirtualClock; chain: FlakyChain; audit: ChainedAudit } {
  const clock = new VirtualClock();
  const chain = new FlakyChain();
  const signer = lazySigner("/nowhere", [new Secret("a-secret-of-the-test-0123456789abcdef")]);
  return { clock, chain, audit: new ChainedAudit({ clock, log: silentLogger, inner: anInner(), chain, signer }) };
}

test("while the chain is away what must be on record is refused, and what happened waits and is written once, in order [80.G18 80.I10]", async () => {
  const { clock, chain, audit } = flaky();
  chain.away = chain.doesItAnyway = true;
  for (let index = 1; index <= 5; index += 1) audit.record(money({ requestId: `${index}` }));
  await clock.advance(10);
  await assert.rejects(audit.commit(money()), { code: "AUDIT_UNAVAILABLE" });
  audit.record(money({ requestId: "6" }));
  await clock.advance(5_000);
  chain.away = false;
  await clock.advance(5_000);
  await audit.commit(money({ requestId: "7" }));
  assert.deepEqual(
    chain.entries.map(({ request }) => request),
    ["1", "2", "3", "4", "5", "6", "7"],
  );
});

test("what is beyond the bound is lost, and the chain says how much [80.I10]", async () => {
  const { clock, chain, audit } = flaky();
  chain.away = true;
  for (let index = 0; index < 10_007; index += 1) audit.record(money());
  chain.away = false;
  await clock.advance(5_000);
  await audit.close();
  assert.equal(chain.entries.length, 10_001);
  const last = chain.entries.find(({ outcome }) => outcome === "lost");
  assert.equal(last?.detail, "7");
});

test("a chain that does not answer is given up after its time, and the refusal is the audit's [80.G18]", async () => {
  const { clock, chain, audit } = flaky();
  chain.append = () => new Promise(() => {});
  const asked = audit.commit(money());
  asked.catch(() => {});
  await clock.advance(2_001);
  await assert.rejects(asked, YardmasterError);
});
