import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { NodeDoc, NodeState } from "../../contract/fleet.ts";
import { asMono } from "../../kernel/clock.ts";
import { aNodeDoc, aNodeReport } from "../../testing/fleet-builders.ts";
import { type FleetStatus, NodeWatch, WATCH_DEFAULTS } from "./node-watch.ts";

const { unreachableAfterMs, lostAfterMs } = WATCH_DEFAULTS;
const LEAD = { clusterId: "one", epoch: 7, holder: "me" };

/** A fleet whose nodes report every 2 s while they are among `alive`. */
class Fleet {
  now = 0;
  readonly docs: NodeDoc[];
  readonly alive: Set<string>;
  readonly watch = new NodeWatch(WATCH_DEFAULTS, LEAD, asMono(0));
  readonly events: string[] = [];

  constructor(docs: readonly NodeDoc[]) {
    this.docs = [...docs];
    this.alive = new Set(docs.map((doc) => doc.id));
  }

  run(ms: number): FleetStatus {
    let status = this.step();
    for (const end = this.now + ms; this.now < end;) {
      this.now += 1_000;
      status = this.step();
    }
    return status;
  }

  step(): FleetStatus {
    if (this.now % 2_000 === 0)
      for (const doc of this.docs)
        if (this.alive.has(doc.id))
          this.watch.heard(aNodeReport(doc.id, { labels: doc.labels, highestEpoch: LEAD }), asMono(this.now));
    const status = this.watch.judge(this.docs, asMono(this.now));
    this.events.push(...status.events.map((event) => `${event.kind} ${event.nodeId ?? ""}`.trim()));
    return status;
  }
}

const names = (count: number, prefix = "n"): string[] => Array.from({ length: count }, (_, at) => `${prefix}${at}`);
const fleetOf = (count: number): Fleet => new Fleet(names(count).map((id) => aNodeDoc(id)));
const statesOf = (status: FleetStatus): NodeState[] => [...status.nodes.values()].map((node) => node.state);

test("a node is unreachable after 10 s of silence, lost after 60 s, and ready with its next report [40.N3]", () => {
  const fleet = fleetOf(3);
  fleet.run(20_000);
  fleet.alive.delete("n0");
  const stateAfter = (ms: number): NodeState | undefined => fleet.run(ms).nodes.get("n0")?.state;
  assert.equal(stateAfter(unreachableAfterMs - 1_000), "ready");
  assert.equal(stateAfter(1_000), "unreachable");
  assert.equal(stateAfter(lostAfterMs - unreachableAfterMs - 1_000), "unreachable");
  assert.equal(stateAfter(1_000), "lost");
  fleet.alive.add("n0");
  assert.equal(stateAfter(2_000), "ready");
  assert.deepEqual(fleet.events, ["nodeUnreachable n0", "nodeLost n0", "nodeReady n0"]);
});

test("a silence of 30 s costs nothing but the state: no node is lost [40.N3 80.A1]", () => {
  const fleet = fleetOf(2);
  fleet.run(10_000);
  fleet.alive.delete("n1");
  fleet.run(30_000);
  fleet.alive.add("n1");
  assert.deepEqual(statesOf(fleet.run(2_000)), ["ready", "ready"]);
  assert.ok(!fleet.events.includes("nodeLost n1"));
});

test("most nodes silent at once: none is lost however long it lasts, it is told once, and the fleet is braked [40.N3b 80.A14]", () => {
  const fleet = fleetOf(10);
  fleet.run(20_000);
  for (const id of names(6)) fleet.alive.delete(id);
  const status = fleet.run(3_600_000);
  assert.equal(status.braked, true);
  assert.equal(statesOf(status).filter((state) => state === "unreachable").length, 6);
  assert.equal(fleet.events.filter((event) => event === "fleetSilent").length, 1);
});

test("five of ten silent nodes are no mass silence: they are lost [40.N3b]", () => {
  const fleet = fleetOf(10);
  fleet.run(20_000);
  for (const id of names(5)) fleet.alive.delete(id);
  const status = fleet.run(lostAfterMs + 2_000);
  assert.equal(status.braked, false);
  assert.equal(statesOf(status).filter((state) => state === "lost").length, 5);
});

test("exactly 55 of a hundred silent nodes are a mass silence, 54 are none [40.N3b 80.A14]", () => {
  for (const [silent, braked] of [
    [54, false],
    [55, true],
  ] as const) {
    const fleet = fleetOf(100);
    fleet.run(20_000);
    for (const id of names(silent)) fleet.alive.delete(id);
    assert.equal(fleet.run(unreachableAfterMs + 2_000).braked, braked, `${silent}`);
  }
});

test("who is still silent when a mass silence ends gets the whole time again [40.N3b]", () => {
  const fleet = fleetOf(10);
  fleet.run(20_000);
  for (const id of names(6)) fleet.alive.delete(id);
  fleet.run(300_000);
  for (const id of names(5)) fleet.alive.add(id);
  assert.deepEqual(
    statesOf(fleet.run(lostAfterMs - 2_000)).filter((state) => state === "lost"),
    [],
  );
  assert.equal(fleet.run(4_000).nodes.get("n5")?.state, "lost");
});

test("a silent zone is suspected alone: its nodes are not lost, another zone's node is [40.N3b]", () => {
  const docs = [
    ...names(3, "a").map((id) => aNodeDoc(id, { labels: { zone: "a" } })),
    ...names(5, "b").map((id) => aNodeDoc(id, { labels: { zone: "b" } })),
  ];
  const fleet = new Fleet(docs);
  fleet.run(20_000);
  for (const id of [...names(3, "a"), "b0"]) fleet.alive.delete(id);
  const status = fleet.run(lostAfterMs * 3);
  assert.deepEqual([...status.silentZones], ["a"]);
  assert.equal(status.braked, false);
  assert.equal(status.nodes.get("b0")?.state, "lost");
  for (const id of names(3, "a")) assert.equal(status.nodes.get(id)?.state, "unreachable");
});

test("the only node of its zone is lost like any other [40.N3b]", () => {
  const fleet = new Fleet(names(3).map((id) => aNodeDoc(id, { labels: { zone: id } })));
  fleet.run(20_000);
  fleet.alive.delete("n0");
  assert.equal(fleet.run(lostAfterMs + 2_000).nodes.get("n0")?.state, "lost");
});

test("dead machines that nobody removed do not hold the brake: lost nodes no longer count [40.N3b]", () => {
  const fleet = fleetOf(10);
  fleet.run(20_000);
  for (const id of names(5)) fleet.alive.delete(id);
  fleet.run(lostAfterMs + 2_000);
  fleet.alive.delete("n9");
  assert.equal(fleet.run(lostAfterMs + 2_000).nodes.get("n9")?.state, "lost");
});

test("a new leader loses nobody in its first 60 s, and waits for known agents only in its window [40.R2 80.A17]", () => {
  const fleet = fleetOf(4);
  fleet.alive.clear();
  assert.equal(fleet.run(1_000).settling, true);
  fleet.alive.add("n0").add("n1").add("n2");
  const later = fleet.run(WATCH_DEFAULTS.settleMs);
  assert.equal(later.settling, false, "n3 is silent, but the window is over");
  assert.equal(later.nodes.get("n3")?.state, "unreachable");
  assert.ok(statesOf(fleet.run(lostAfterMs - WATCH_DEFAULTS.settleMs - 3_000)).every((state) => state !== "lost"));
  assert.equal(fleet.run(4_000).nodes.get("n3")?.state, "lost");
});

test("the window closes as soon as every known agent has reported [40.R2]", () => {
  const fleet = fleetOf(4);
  assert.equal(fleet.step().settling, false);
  assert.deepEqual(fleet.events, []);
});

test("a report of an agent that follows another term says that the node lives, and no more [40.R2]", () => {
  const watch = new NodeWatch(WATCH_DEFAULTS, LEAD, asMono(0));
  const docs = [aNodeDoc("n0")];
  const others = [null, { ...LEAD, epoch: 6 }, { ...LEAD, holder: "another" }, { ...LEAD, clusterId: "two" }];
  for (const highestEpoch of others) {
    watch.heard(aNodeReport("n0", { highestEpoch }), asMono(1_000));
    const status = watch.judge(docs, asMono(1_000));
    assert.deepEqual([status.nodes.get("n0")?.state, status.nodes.get("n0")?.report], ["unreachable", null]);
    assert.equal(status.settling, true);
  }
  for (let at = 1_000; at < 120_000; at += 2_000) {
    watch.heard(aNodeReport("n0", { highestEpoch: null }), asMono(at));
    assert.equal(watch.judge(docs, asMono(at)).nodes.get("n0")?.state, "unreachable", "it is not silent");
  }
  watch.heard(aNodeReport("n0", { highestEpoch: LEAD }), asMono(120_000));
  assert.equal(watch.judge(docs, asMono(120_000)).nodes.get("n0")?.state, "ready");
});

test("a node that was enrolled and never reported is neither waited for nor lost [40.N3]", () => {
  const fleet = new Fleet([aNodeDoc("n0"), aNodeDoc("new", { bootId: null })]);
  fleet.alive.delete("new");
  const status = fleet.run(lostAfterMs * 2);
  assert.equal(status.nodes.get("new")?.state, "never_seen");
  assert.equal(status.settling, false);
  fleet.alive.add("new");
  assert.equal(fleet.run(2_000).nodes.get("new")?.state, "ready");
});

test("the next change is announced: nothing changes before it, and something does at it, if nobody reports [40.N3]", () => {
  const fleet = fleetOf(3);
  let status = fleet.run(4_000);
  fleet.alive.delete("n1");
  status = fleet.run(2_000);
  fleet.alive.clear();
  for (let changes = 0; changes < 2; changes++) {
    assert.ok(status.nextChangeAt !== null);
    const before = fleet.watch.judge(fleet.docs, asMono(status.nextChangeAt - 1));
    assert.deepEqual(statesOf(before), statesOf(status));
    const after = fleet.watch.judge(fleet.docs, status.nextChangeAt);
    assert.notDeepEqual(statesOf(after), statesOf(before));
    status = after;
  }
});

test("whatever the silences: nobody is lost who was heard in the last 60 s, nor while most are silent [40.N3 40.N3b]", () => {
  const silences = fc.array(fc.record({ node: fc.nat(5), from: fc.nat(200), length: fc.nat(200) }), { maxLength: 12 });
  fc.assert(
    fc.property(silences, (plan) => {
      const fleet = fleetOf(6);
      const heardAt = new Map(names(6).map((id) => [id, 0]));
      let before = new Map<string, NodeState>();
      for (let second = 0; second <= 400; second += 2) {
        fleet.alive.clear();
        for (const id of names(6)) {
          const silent = plan.some(
            ({ node, from, length }) => `n${node}` === id && second >= from && second < from + length,
          );
          if (!silent) {
            fleet.alive.add(id);
            heardAt.set(id, second);
          }
        }
        fleet.now = second * 1_000;
        const status = fleet.step();
        for (const node of status.nodes.values()) {
          const silentS = second - (heardAt.get(node.nodeId) ?? 0);
          if (fleet.alive.has(node.nodeId)) assert.equal(node.state, "ready");
          if (node.state !== "lost" || before.get(node.nodeId) === "lost") continue;
          assert.ok(silentS * 1_000 >= lostAfterMs);
          assert.equal(status.braked, false);
        }
        before = new Map([...status.nodes].map(([id, { state }]) => [id, state]));
      }
    }),
    { numRuns: 40 },
  );
});
