import assert from "node:assert/strict";
import { test } from "node:test";
import type { BoardReport, BoardUpstream } from "../../contract/feed-board.ts";
import type { GatewayMessage } from "../../contract/feed.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { BoardReporter } from "./board-reporter.ts";

const NONE = { interactive: 0, system: 0, batch: 0 };
const row = (id: string, slots: number): BoardUpstream => ({
  id,
  models: [],
  engine: "vllm",
  catalogModel: null,
  slots,
  batchMax: 1,
  inUse: NONE,
  lingering: 0,
  waiting: NONE,
  oldestWaitMs: null,
  queue: [],
  firstByte: [],
  ended: 0,
  away: null,
  endpoints: { all: 1, well: 1 },
  sharing: null,
  hasOverflow: false,
});

function aReporter() {
  const clock = new VirtualClock();
  const said: BoardReport[] = [];
  const world = {
    slots: new Map([
      ["a", 1],
      ["b", 1],
    ]),
    takes: true,
  };
  const reporter = new BoardReporter<string>(
    {
      send: (message: GatewayMessage) => {
        if (!world.takes) return false;
        if (message.type === "board") said.push(message);
        return true;
      },
    },
    {
      clock,
      bounds: { queueBounds: [1], firstByteBounds: [1] },
      upstreams: () => [...world.slots.keys()],
      row: (id) => row(id, world.slots.get(id) ?? 0),
    },
  );
  return { clock, said, world, reporter };
}
const ids = (report: BoardReport | undefined): string[] => (report?.rows ?? []).map(({ id }) => id);

test("everything is told once, then what has changed and what has gone; nothing while nobody wants it", async () => {
  const { clock, said, world, reporter } = aReporter();
  await clock.advance(10_000);
  assert.equal(said.length, 0, "nobody has asked");
  reporter.watch(1_000);
  assert.deepEqual([said[0]?.whole, ids(said[0]), said[0]?.last], [true, ["a", "b"], true]);
  await clock.advance(1_000);
  assert.deepEqual([said[1]?.whole, ids(said[1])], [false, []]);
  world.slots.set("a", 2);
  world.slots.delete("b");
  await clock.advance(1_000);
  assert.deepEqual([ids(said[2]), said[2]?.gone], [["a"], ["b"]]);
  reporter.watch(0);
  await clock.advance(10_000);
  assert.equal(said.length, 3);
  reporter.watch(1_000);
  assert.equal(said[3]?.whole, true, "what was told then is forgotten there");
  reporter.close();
  await clock.advance(10_000);
  assert.equal(said.length, 4);
});

test("what could not be said is said whole later", async () => {
  const { clock, said, world, reporter } = aReporter();
  reporter.watch(1_000);
  world.takes = false;
  world.slots.set("a", 5);
  await clock.advance(3_000);
  world.takes = true;
  await clock.advance(1_000);
  assert.deepEqual([said.at(-1)?.whole, ids(said.at(-1))], [true, ["a", "b"]]);
  reporter.close();
});

test("a gateway with thousands of upstreams tells them in parts, and others have their turns between", async () => {
  const { said, world, reporter } = aReporter();
  for (let at = 0; at < 2_000; at += 1) world.slots.set(`u-${at}`, 1);
  reporter.watch(1_000);
  assert.ok(said.length === 1 && ids(said[0]).length <= 100, "not all in one turn");
  while (said.at(-1)?.last !== true) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(said.flatMap(ids).length, 2_002);
  assert.deepEqual(said.map(({ whole }) => whole).filter(Boolean).length, 1);
  reporter.close();
});
