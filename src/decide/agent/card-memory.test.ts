import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { GpuReport } from "../../contract/fleet.ts";
import { judgeFreed, judgeRoom, ownMemory, type CardsHeldBy, type CardsView, type RoomWanted } from "./card-memory.ts";

const card = (over: Partial<GpuReport> = {}): GpuReport => ({
  uuid: "GPU-0",
  index: 0,
  name: "NVIDIA H200",
  class: "h200",
  memoryMib: 100_000,
  usedMib: 500,
  foreignMib: 0,
  utilization: 0,
  temperatureC: 30,
  health: "ok",
  healthWhy: null,
  ...over,
});
const view = (over: Partial<GpuReport> = {}, rest: Partial<CardsView> = {}): CardsView => ({
  gpus: [card(over)],
  apps: [],
  readable: true,
  begunAt: 100,
  ...rest,
});
const wanted = (over: Partial<RoomWanted> = {}): RoomWanted => ({
  uuids: ["GPU-0"],
  needMib: 60_000,
  reservedMib: new Map(),
  notBefore: 50,
  ...over,
});

const rooms: readonly {
  readonly name: string;
  readonly view?: CardsView;
  readonly wanted?: RoomWanted;
  readonly expect: RegExp;
}[] = [
  { name: "an empty card", expect: /^enough$/ },
  {
    name: "a start without cards",
    view: view({}, { readable: false }),
    wanted: wanted({ uuids: [] }),
    expect: /^enough$/,
  },
  {
    name: "memory that others hold",
    view: view({ usedMib: 50_000 }),
    expect: /^blocked by PID 7; 50000 MiB of 60000 MiB/,
  },
  {
    name: "memory that was given to an engine which has not taken it yet",
    wanted: wanted({ reservedMib: new Map([["GPU-0", 50_000]]) }),
    expect: /50000 MiB of 60000/,
  },
  { name: "a card that is not there", wanted: wanted({ uuids: ["GPU-9"] }), expect: /no card GPU-9/ },
  { name: "a sick card", view: view({ health: "sick", healthWhy: "[GPU is lost]" }), expect: /sick: \[GPU is lost\]/ },
  { name: "cards that can't be read", view: view({}, { readable: false }), expect: /^unknown$/ },
  { name: "a card of which nothing is known", view: view({ health: "unknown", usedMib: null }), expect: /^unknown$/ },
  { name: "a reading from before the command", view: view({}, { begunAt: 49 }), expect: /^unknown$/ },
  { name: "a card that does not count its memory", view: view({ usedMib: null }), expect: /^enough$/ },
];
for (const { name, view: cards, wanted: want, expect } of rooms) {
  test(`room for a start: ${name} [80.A5]`, () => {
    const room = judgeRoom(cards ?? view(), want ?? wanted(), () => "blocked by PID 7");
    assert.match(typeof room === "string" ? room : room.short, expect);
  });
}

const held = (over: Partial<CardsHeldBy> = {}): CardsHeldBy => ({
  uuids: ["GPU-0"],
  pids: new Set([77]),
  goneAt: 50,
  usedBeforeMib: { "GPU-0": 500 },
  shared: new Set(),
  ...over,
});
const app = { gpuUuid: "GPU-0", pid: 77, usedMib: 9_000, name: "x" };
const freed: readonly {
  readonly name: string;
  readonly view?: CardsView;
  readonly held?: CardsHeldBy;
  readonly expect: RegExp;
}[] = [
  { name: "as before the start", expect: /^free$/ },
  { name: "no cards", held: held({ uuids: [] }), expect: /^free$/ },
  { name: "a process of it is on the card", view: view({ usedMib: 9_500 }, { apps: [app] }), expect: /process 77/ },
  { name: "memory without a process", view: view({ usedMib: 9_500 }), expect: /9000 MiB more/ },
  { name: "memory that another took since", view: view({ usedMib: 9_500, foreignMib: 9_000 }), expect: /^free$/ },
  {
    name: "another engine of the node on the card",
    view: view({ usedMib: 9_500 }),
    held: held({ shared: new Set(["GPU-0"]) }),
    expect: /^free$/,
  },
  { name: "a reading from before the end", view: view({}, { begunAt: 49 }), expect: /^unknown$/ },
  { name: "cards that can't be read", view: view({}, { readable: false }), expect: /^unknown$/ },
  { name: "a card that does not say", view: view({ usedMib: null }), expect: /^unknown$/ },
  { name: "nothing known from before, no process left", held: held({ usedBeforeMib: {} }), expect: /^free$/ },
];
for (const { name, view: cards, held: by, expect } of freed) {
  test(`an engine's memory after its end: ${name} [40.N4b]`, () => {
    const found = judgeFreed(cards ?? view(), by ?? held());
    assert.match(typeof found === "string" ? found : found.held, expect);
  });
}

test("a start is never let onto a card whose known free memory is less than it needs [80.A5]", () => {
  const figures = fc.record({
    used: fc.nat(100_000),
    foreign: fc.nat(100_000),
    reserved: fc.nat(100_000),
    need: fc.nat(100_000),
  });
  fc.assert(
    fc.property(figures, ({ used, foreign, reserved, need }) => {
      const cards = view({ usedMib: used, foreignMib: foreign });
      const room = judgeRoom(cards, wanted({ needMib: need, reservedMib: new Map([["GPU-0", reserved]]) }), () => null);
      assert.equal(room === "enough", 100_000 - Math.max(used, foreign + reserved) >= need);
      assert.equal(ownMemory(cards, ["GPU-0"])["GPU-0"], Math.max(0, used - foreign));
    }),
  );
});
