import assert from "node:assert/strict";
import { test } from "node:test";
import type { BoardUpstream } from "../../contract/feed-board.ts";
import type { FeedMessage } from "../../contract/feed.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { GatewayDesk } from "./gateway-desk.ts";
import type { GatewayPeer } from "./gateway-peer.ts";

const NONE = { interactive: 0, system: 0, batch: 0 };
const row = (id: string): BoardUpstream => ({
  id,
  models: [],
  engine: "vllm",
  catalogModel: null,
  slots: 4,
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

class FakePeer implements GatewayPeer {
  readonly heard: FeedMessage[] = [];
  readonly tellsBoards: boolean;
  readonly id: string;
  constructor(id: string, tellsBoards = true) {
    this.id = id;
    this.tellsBoards = tellsBoards;
  }
  get name(): string {
    return `name of ${this.id}`;
  }
  say(message: FeedMessage): boolean {
    this.heard.push(message);
    return true;
  }
  get paces(): number[] {
    return this.heard.flatMap((message) => (message.type === "boardWatch" ? message.everyMs : []));
  }
}
const told = (desk: GatewayDesk, peer: FakePeer, ids: readonly string[], whole = true): void =>
  desk.take(peer, {
    type: "board",
    whole,
    queueBounds: [],
    firstByteBounds: [],
    rows: ids.map(row),
    gone: [],
    last: true,
  });
const ASKER = { keyId: "k", role: "operator" } as const;

test("gateways are asked for nothing until a board is opened, once a second while one is, and no longer a day after the last", async () => {
  const clock = new VirtualClock();
  const desk = new GatewayDesk(clock);
  const [first, old] = [new FakePeer("a"), new FakePeer("old", false)];
  desk.joined(first);
  desk.joined(old);
  await clock.advance(3_600_000);
  assert.deepEqual([first.heard, old.heard], [[], []]);
  const [close, closeToo] = [desk.open(), desk.open()];
  assert.deepEqual(first.paces, [1_000]);
  const late = new FakePeer("late");
  desk.joined(late);
  assert.deepEqual(late.paces, [1_000], "one that comes later is asked as well");
  close();
  close();
  assert.deepEqual(first.paces, [1_000], "another board is still open");
  closeToo();
  assert.deepEqual(first.paces, [1_000, 5_000]);
  await clock.advance(25 * 3_600_000);
  assert.deepEqual(first.paces, [1_000, 5_000, 0]);
  assert.deepEqual(old.heard, [], "one of an older version is never asked");
  desk.close();
});

test("what a gateway told ends with its connection, and with the asking", async () => {
  const clock = new VirtualClock();
  const desk = new GatewayDesk(clock);
  const [a, b] = [new FakePeer("a"), new FakePeer("b")];
  for (const peer of [a, b]) desk.joined(peer);
  const close = desk.open();
  told(desk, a, ["u", "only-a"]);
  told(desk, b, ["u"]);
  assert.deepEqual(
    desk.rows().map(({ id, slots }) => [id, slots]),
    [
      ["u", 8],
      ["only-a", 4],
    ],
  );
  desk.left(a);
  assert.deepEqual(
    desk.rows().map(({ id, slots }) => [id, slots]),
    [["u", 4]],
  );
  told(desk, a, ["ghost"]);
  assert.equal(desk.rows().length, 1, "one that has left is not heard");
  close();
  await clock.advance(25 * 3_600_000);
  assert.deepEqual(desk.rows(), []);
  desk.close();
});

test("an ask ends once: by its answer, by its time, by the connection, or by whoever asked", async () => {
  const clock = new VirtualClock();
  const desk = new GatewayDesk(clock);
  const [peer, other] = [new FakePeer("a"), new FakePeer("b")];
  for (const each of [peer, other]) desk.joined(each);
  const ask = (): Promise<string> =>
    desk.asks.askWhole(peer, ASKER, { method: "GET", target: "/v1/jobs" }).then(
      ({ status, text }) => `${status} ${text}`,
      (error: { code: string }) => error.code,
    );
  const n = (): number => peer.heard.findLast((message) => message.type === "ask")?.n ?? 0;
  const answered = ask();
  desk.take(other, { type: "answerHead", n: n(), status: 500, headers: {} });
  desk.take(peer, { type: "answerHead", n: n(), status: 200, headers: {} });
  desk.take(peer, { type: "answerText", n: n(), text: "a" });
  desk.take(peer, { type: "answerText", n: n(), text: "b" });
  desk.take(peer, { type: "answerEnd", n: n(), outcome: "whole" });
  assert.equal(await answered, "200 ab", "what another connection says of it is not heard");
  const late = ask();
  await clock.advance(6_000);
  assert.equal(await late, "GATEWAY_SILENT");
  assert.equal(peer.heard.at(-1)?.type, "askOff", "it is called off there");
  const cut = ask();
  desk.left(peer);
  assert.equal(await cut, "GATEWAY_SILENT");
  desk.joined(peer);
  const all = Array.from({ length: 40 }, ask);
  assert.equal(
    (await Promise.all(all.slice(32))).every((code) => code === "GATEWAY_SILENT"),
    true,
    "they are bounded",
  );
  desk.left(peer);
  await Promise.all(all);
  desk.close();
});
