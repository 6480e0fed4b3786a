import assert from "node:assert/strict";
import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import { REVISIONS_KEPT } from "./catalogs.ts";
import { StoreFault } from "./sql-driver.ts";
import { nth, type StoreSuite, withFault } from "./suite.conformance.ts";

const event = (revision: number): NewEvent => controlEvent("catalogApplied", `revision ${revision}`);
const fresh = (base: number, text: string, origin = "api") => ({ base, author: "ana", origin, text });

/** Revisions of the catalog. */
export function runCatalogSuite({ it }: StoreSuite): void {
  it("a catalog is kept with its revision, author, origin and time, and every revision can be read again [40.C1]", async ({
    open,
  }) => {
    const store = await open();
    assert.equal(await store.catalog(), undefined);
    assert.equal(await store.catalogRevision(), 0);
    assert.deepEqual(await store.saveCatalog(fresh(0, "models: []\n", "file"), event), { kind: "saved", revision: 1 });
    assert.deepEqual(await store.saveCatalog(fresh(1, "models: [é]\n"), event), { kind: "saved", revision: 2 });
    const newest = await store.catalog();
    assert.equal(newest?.text, "models: [é]\n");
    assert.deepEqual([newest?.revision, newest?.author, newest?.origin], [2, "ana", "api"]);
    assert.ok((newest?.at ?? "") > "2026-01-01");
    assert.equal((await store.catalog(1))?.text, "models: []\n");
    assert.equal(await store.catalog(3), undefined);
    assert.deepEqual(
      (await store.catalogHistory(10)).map(({ revision }) => revision),
      [2, 1],
    );
    assert.equal(await store.catalogFileDigest(), (await store.catalog(1))?.digest);
    assert.deepEqual(
      (await store.events({ limit: 10 })).map(({ why }) => why),
      ["revision 1", "revision 2"],
    );
  });

  it("of several that edit the same revision at once one is taken, and the others are told the new one [80.P10]", async ({
    connect,
    open,
  }) => {
    const stores = await Promise.all((await Promise.all([connect(), connect(), connect()])).map(open));
    const outcomes = await Promise.all(
      Array.from({ length: 9 }, (_, index) => nth(stores, index).saveCatalog(fresh(0, `# ${index}`), event)),
    );
    assert.deepEqual(outcomes.map((outcome) => outcome.kind).toSorted(), [
      ...Array.from({ length: 8 }, () => "changed"),
      "saved",
    ]);
    for (const outcome of outcomes) assert.equal(outcome.revision, 1);
    const store = await open();
    const winner = outcomes.findIndex((outcome) => outcome.kind === "saved");
    assert.equal((await store.catalog())?.text, `# ${winner}`);
    assert.equal((await store.events({ limit: 10 })).length, 1);
  });

  it("an edit whose answer is lost is found again, and done once [80.P2]", async ({ connect, open }) => {
    const driver = await connect();
    let armed = false;
    const store = await open(
      withFault(driver, async (carryOut) => {
        const outcome = await carryOut();
        if (!armed) return outcome;
        armed = false;
        throw new StoreFault("the answer is lost", { applied: "unknown" });
      }),
    );
    armed = true;
    assert.deepEqual(await store.saveCatalog(fresh(0, "a"), event), { kind: "saved", revision: 1 });
    assert.equal((await store.catalogHistory(10)).length, 1);
  });

  it("old revisions are dropped beyond the number that is kept", async ({ open }) => {
    const store = await open();
    for (let base = 0; base < REVISIONS_KEPT + 5; base += 1) await store.saveCatalog(fresh(base, `# ${base}`), event);
    const history = await store.catalogHistory(1_000);
    assert.equal(history.length, REVISIONS_KEPT);
    assert.equal(history[0]?.revision, REVISIONS_KEPT + 5);
  });

  it("a catalog that is not what was written is refused, not acted upon [80.P9]", async ({ connect, open }) => {
    const driver = await connect();
    const store = await open(driver);
    await store.saveCatalog(fresh(0, "models: []"), event);
    await driver.transaction([{ text: "UPDATE ym_catalogs SET body = 'models: [ ]'", values: [] }]);
    await assert.rejects(store.catalog(), { code: "STORE_REFUSED", message: /revision 1/ });
  });
}
