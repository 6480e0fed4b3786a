import assert from "node:assert/strict";
import { Secret } from "../../kernel/secret.ts";
import type { ControlStore } from "./control-store.ts";
import { nth, type StoreSuite } from "./suite.conformance.ts";

async function tokenFor(store: ControlStore, node: string): Promise<Secret> {
  const issued = await store.issueToken(node, "ana");
  assert.ok(issued !== undefined);
  return issued.token;
}

async function enrol(store: ControlStore, node: string): Promise<{ credential: Secret; nodeId: string }> {
  const outcome = await store.redeemToken(await tokenFor(store, node), node);
  assert.equal(outcome.kind, "enrolled");
  return outcome.kind === "enrolled" ? outcome : assert.fail();
}

/** Tokens and credentials of nodes. */
export function runEnrolmentSuite({ it }: StoreSuite): void {
  it("a token lets the node of its name in once, however many try at once [80.D26]", async ({ connect, open }) => {
    const stores = await Promise.all((await Promise.all([connect(), connect()])).map(open));
    const [store] = stores;
    assert.ok(store !== undefined);
    const token = await tokenFor(store, "node-a");
    const outcomes = await Promise.all(
      Array.from({ length: 10 }, (_, index) => nth(stores, index).redeemToken(token, "node-a")),
    );
    assert.equal(outcomes.filter((outcome) => outcome.kind === "enrolled").length, 1);
    assert.deepEqual(await store.redeemToken(token, "node-a"), { kind: "refused", why: "used" });
    const kinds = (await store.events({ limit: 50 })).map(({ kind }) => kind);
    assert.equal(kinds.filter((kind) => kind === "enrolmentRefused").length, 10, "each further use is told");
  });

  it("a token of another node, an expired one and a guessed one let nobody in [80.D26]", async ({ connect, open }) => {
    const driver = await connect();
    const store = await open(driver);
    const token = await tokenFor(store, "node-a");
    assert.deepEqual(await store.redeemToken(token, "node-b"), { kind: "refused", why: "otherNode" });
    assert.deepEqual(await store.redeemToken(token, "node-a'; --"), { kind: "refused", why: "otherNode" });
    await driver.transaction([{ text: "UPDATE ym_enrolments SET expires_ms = expires_ms - 900001", values: [] }]);
    assert.deepEqual(await store.redeemToken(token, "node-a"), { kind: "refused", why: "expired" });
    for (let guess = 0; guess < 200; guess += 1)
      assert.deepEqual(await store.redeemToken(new Secret(`ymt_${guess}`), "node-a"), {
        kind: "refused",
        why: "unknown",
      });
    assert.equal((await store.events({ limit: 50 })).filter(({ kind }) => kind === "enrolmentRefused").length, 3);
  });

  it("a credential names its node, and another text names none", async ({ open }) => {
    const store = await open();
    const { credential, nodeId } = await enrol(store, "node-a");
    assert.deepEqual(await store.checkCredential(credential), { node: "node-a", nodeId, renew: false });
    assert.equal(await store.checkCredential(new Secret(`${credential.reveal()}x`)), undefined);
    assert.equal(await store.checkCredential(new Secret("")), undefined);
  });

  it("a credential grows old and is renewed; the old one ends with the first use of the new one", async ({
    connect,
    open,
  }) => {
    const driver = await connect();
    const store = await open(driver);
    const { credential, nodeId } = await enrol(store, "node-a");
    await driver.transaction([{ text: "UPDATE ym_credentials SET issued_ms = issued_ms - 57600000", values: [] }]);
    assert.equal((await store.checkCredential(credential))?.renew, true);
    const lost = await store.renewCredential(credential);
    assert.ok(lost !== undefined);
    // The agent never got it: the old one goes on, and what was lost is void after the next renewal.
    assert.deepEqual(await store.checkCredential(credential), { node: "node-a", nodeId, renew: true });
    const fresh = await store.renewCredential(credential);
    assert.ok(fresh !== undefined);
    assert.equal(await store.checkCredential(lost), undefined);
    assert.deepEqual(await store.checkCredential(fresh), { node: "node-a", nodeId, renew: false });
    assert.equal(await store.checkCredential(credential), undefined);
  });

  it("a credential that nobody used for its time is over", async ({ connect, open }) => {
    const driver = await connect();
    const store = await open(driver);
    const { credential } = await enrol(store, "node-a");
    await driver.transaction([{ text: "UPDATE ym_credentials SET ends_ms = ends_ms - 2592000001", values: [] }]);
    assert.equal(await store.checkCredential(credential), undefined);
    assert.equal(await store.renewCredential(credential), undefined);
  });

  it("a node that is enrolled again is the same node, and its earlier credential is over", async ({ open }) => {
    const store = await open();
    const first = await enrol(store, "node-a");
    const second = await enrol(store, "node-a");
    assert.equal(second.nodeId, first.nodeId);
    assert.equal(await store.checkCredential(first.credential), undefined);
    assert.equal((await store.checkCredential(second.credential))?.nodeId, first.nodeId);
    assert.notEqual((await enrol(store, "node-b")).nodeId, first.nodeId);
  });

  it("a node that is shut out stays out", async ({ open }) => {
    const store = await open();
    const { credential, nodeId } = await enrol(store, "node-a");
    const other = await enrol(store, "node-b");
    assert.deepEqual(await store.enrolledNodes(), new Set([nodeId, other.nodeId]));
    assert.equal(await store.revokeNode(nodeId), 1);
    assert.deepEqual(await store.enrolledNodes(), new Set([other.nodeId]));
    assert.equal(await store.checkCredential(credential), undefined);
    assert.equal(await store.revokeNode(nodeId), 0);
  });

  it("a credential's row that was changed in the database lets nobody in [80.P9]", async ({ connect, open }) => {
    const driver = await connect();
    const store = await open(driver);
    const { credential } = await enrol(store, "node-a");
    await driver.transaction([{ text: "UPDATE ym_credentials SET node_id = 'node-other'", values: [] }]);
    assert.equal(await store.checkCredential(credential), undefined);
  });

  it("no token and no credential rests in the database or in an event [80.C39]", async ({ connect, open }) => {
    const driver = await connect();
    const store = await open(driver);
    const token = await tokenFor(store, "node-a");
    const outcome = await store.redeemToken(token, "node-a");
    assert.ok(outcome.kind === "enrolled");
    const tables = ["ym_enrolments", "ym_credentials", "ym_events", "ym_meta", "ym_docs"];
    const rows = await Promise.all(tables.map((table) => driver.query({ text: `SELECT * FROM ${table}`, values: [] })));
    const dump = JSON.stringify(rows);
    assert.ok(dump.includes("node-a"));
    for (const secret of [token, outcome.credential]) assert.ok(!dump.includes(secret.reveal()));
  });
}
