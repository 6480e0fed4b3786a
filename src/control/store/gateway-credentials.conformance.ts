import assert from "node:assert/strict";
import { Secret } from "../../kernel/secret.ts";
import type { StoreSuite } from "./suite.conformance.ts";

/** Credentials of gateways. */
export function runGatewaySuite({ it }: StoreSuite): void {
  it("a gateway's credential lets its gateway in until it is replaced or taken back, and rests as a hash alone", async ({
    connect,
    open,
  }) => {
    const driver = await connect();
    const store = await open(driver);
    const first = await store.issueGateway("gw-1", "ana");
    assert.ok(first !== undefined);
    assert.equal(await store.checkGateway(first), "gw-1");
    assert.equal(await store.checkGateway(new Secret(`${first.reveal()}x`)), undefined);
    const second = await store.issueGateway("gw-1", "bo");
    assert.ok(second !== undefined);
    assert.deepEqual([await store.checkGateway(first), await store.checkGateway(second)], [undefined, "gw-1"]);
    assert.deepEqual(
      (await store.listGateways()).map(({ name, author }) => [name, author]),
      [["gw-1", "bo"]],
    );
    const rows = JSON.stringify(await driver.query({ text: "SELECT * FROM ym_gateways", values: [] }));
    for (const credential of [first, second]) assert.ok(!rows.includes(credential.reveal()));
    assert.deepEqual(
      [await store.revokeGateway("gw-1", "ana"), await store.revokeGateway("gw-1", "ana")],
      [true, false],
    );
    assert.equal(await store.checkGateway(second), undefined);
  });

  it("a gateway's row that was changed in the database lets nobody in [80.P9]", async ({ connect, open }) => {
    const driver = await connect();
    const store = await open(driver);
    const credential = await store.issueGateway("gw-1", "ana");
    assert.ok(credential !== undefined);
    await driver.transaction([{ text: "UPDATE ym_gateways SET name = 'gw-2'", values: [] }]);
    assert.equal(await store.checkGateway(credential), undefined);
  });
}
