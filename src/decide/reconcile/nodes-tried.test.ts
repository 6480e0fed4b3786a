import assert from "node:assert/strict";
import { test } from "node:test";
import { aFailure, aModel, aModelDoc, aShard } from "../../testing/fleet-builders.ts";
import { PassWorld } from "../../testing/pass-world.ts";

const NODES = ["a", "b", "c", "d", "e", "f"];
const chat = aModel("chat", { replicas: { min: 1, max: 2 } });

/** Where the next replica is placed, once its time has come; it fails there at once. */
function failNext(world: PassWorld): string {
  const placing = () => [...world.replicas.values()].find(({ state }) => state === "placing");
  for (let at = 0; at < 400 && placing() === undefined; at += 1) world.pass(1_000);
  const doc = placing();
  const nodeId = doc?.shards[0]?.nodeId;
  assert.ok(doc !== undefined && nodeId !== undefined, "nothing was placed");
  world.report(nodeId, [aShard(doc, { state: "failed", failure: aFailure() })]);
  world.pass(1_000);
  world.report(nodeId, []);
  return nodeId;
}

test("a version that fails wherever it starts is tried on three nodes of many, and then on these again until it is parked [80.A11]", () => {
  const world = new PassWorld([chat], NODES);
  const tried: string[] = [];
  while ((world.models.get("chat")?.parked ?? null) === null) tried.push(failNext(world));
  assert.equal(tried.length, 5);
  assert.equal(new Set(tried).size, 3, tried.join(" "));
});

test("where none of the nodes that were tried has room for it, a further one is tried rather than none [80.A11]", () => {
  const world = new PassWorld([chat], NODES);
  const tried = [failNext(world), failNext(world), failNext(world)];
  for (const id of tried) world.nodeDocs.set(id, { ...world.nodeDocs.get(id)!, cordoned: true });
  assert.ok(!tried.includes(failNext(world)));
});

test("what a ready replica shows to be good is not the model's fault elsewhere: another node is tried [80.A11]", () => {
  const world = new PassWorld([chat], NODES);
  world.pass();
  world.reportReady();
  world.pass();
  const failedOn = Object.fromEntries(NODES.slice(1, 4).map((id) => [id, 1]));
  world.models.set("chat", aModelDoc("chat", { profileHashes: ["chat-1"], failedOn, scaledTo: 2 }));
  world.pass();
  const second = [...world.replicas.values()].find(({ state }) => state === "placing");
  assert.ok(["e", "f"].includes(second?.shards[0]?.nodeId ?? ""), second?.shards[0]?.nodeId);
});
