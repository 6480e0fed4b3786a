import assert from "node:assert/strict";
import { request, type IncomingMessage } from "node:http";
import { after, before, test } from "node:test";
import type { Change, Snapshot } from "../../src/contract/board.ts";
import type { ClusterView } from "../../src/control/view/cluster-view.ts";
import { aGpu, aNodeReport } from "../../src/testing/fleet-builders.ts";
import { aNodeDoc, aReplicaDoc } from "../../src/testing/fleet-docs.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { signIn, type BoardStream, type SignedIn } from "./support/board-client.ts";
import { keyOf, startTestControl, type TestControl } from "./support/test-control.ts";

const HOSTILE = `</script><img src=x onerror=alert(1)>\u0000\u001b[31m\u202e"\n\ndata: x\r\nevent: end`;

/** What the fleet looks like; a test changes it. */
const fleet = { nodes: 3, temperature: 40, name: "rack" };
let control: TestControl;
let by: SignedIn;

before(async () => {
  control = await startTestControl({ makeView: (live) => withFleet(live) });
  await eventually(
    "the lead",
    () => control.plane.leading,
    (leading) => leading,
  );
  by = await signIn(control.url, { key: keyOf("operator") });
});
after(() => control[Symbol.asyncDispose]());

function withFleet(live: ClusterView): ClusterView {
  // Its methods need the view itself, which holds what nobody else sees.
  const bound = new Proxy(live, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name);
      return typeof found === "function" ? (found.bind(target) as unknown) : found;
    },
  });
  return Object.assign(Object.create(bound) as ClusterView, {
    snapshot: async () => ({
      ...(await live.snapshot()),
      nodes: Array.from({ length: fleet.nodes }, (_, at) => ({
        doc: aNodeDoc(`node-${at}`, { name: `${fleet.name}-${at}` }),
        state: "ready" as const,
        silentMs: 100,
        report: {
          ...aNodeReport(`node-${at}`),
          gpus: [aGpu(`GPU-${at}`, { temperatureC: fleet.temperature, usedMib: null, utilization: null })],
        },
      })),
      replicas: [aReplicaDoc("r", { model: HOSTILE, reason: HOSTILE })],
    }),
  });
}

/** All that was told, laid over each other as a board does. */
function laid(events: BoardStream["events"]): Record<string, Record<string, unknown>> {
  const tables: Record<string, Record<string, unknown>> = {};
  for (const message of events as unknown as { event: string; data: unknown }[]) {
    if (message.event === "snapshot")
      for (const [name, rows] of Object.entries((message.data as Snapshot).tables)) tables[name] = { ...rows };
    if (message.event !== "change") continue;
    const { set = {}, gone = {} } = message.data as Change;
    for (const [name, rows] of Object.entries(set)) tables[name] = { ...tables[name], ...rows };
    for (const [name, keys] of Object.entries(gone)) for (const key of keys) delete tables[name]?.[key];
  }
  return tables;
}
const temperature = (events: BoardStream["events"]): number | undefined =>
  (laid(events)["gpus"]?.["node-0"] as { gpus: { temperatureC: number }[] } | undefined)?.gpus[0]?.temperatureC;

test("a board gets everything once, and then what has changed; names of others are text in it, whatever they hold [80.C49 80.D36]", async () => {
  fleet.temperature = 40;
  using stream = await by.stream();
  await stream.until("the first word", () => stream.count("snapshot") === 1);
  const first = stream.events[0]?.data as Snapshot;
  assert.equal(Object.keys(first.tables.nodes).length, 3);
  assert.deepEqual(
    [first.tables.gpus["node-0"]?.gpus[0]?.usedMib, first.tables.gpus["node-0"]?.gpus[0]?.utilization],
    [null, null],
    "unknown is unknown",
  );
  assert.equal(first.tables.replicas["r"]?.model, HOSTILE);
  assert.equal(first.tables.replicas["r"]?.why, HOSTILE);
  fleet.temperature = 41;
  await stream.until("the change", () => temperature(stream.events) === 41);
  const change = stream.events.find(({ event, id }) => event === "change" && id !== null)?.data as Change;
  assert.deepEqual(Object.keys(change.set?.gpus ?? {}).toSorted(), ["node-0", "node-1", "node-2"]);
  assert.equal(change.set?.nodes, undefined, "what is the same is not sent again");
  assert.equal(stream.count("snapshot"), 1);
  const quiet = stream.events.length;
  await stream.until("a sign of life", () => stream.events.length > quiet + 1);
  assert.ok(
    stream.events.slice(quiet).some(({ id, data }) => id === null && Object.keys(data as object).join() === "at"),
  );
});

test("over a lost connection a board gets what it missed, and everything where that is not known any more", async () => {
  fleet.temperature = 50;
  let seen: BoardStream["events"];
  let last: string | undefined;
  {
    using stream = await by.stream();
    await stream.until("the first word", () => temperature(stream.events) === 50);
    last = stream.lastId;
    seen = stream.events;
  }
  fleet.temperature = 51;
  using again = await by.stream(last);
  await again.until("what it missed", () => temperature([...seen, ...again.events]) === 51);
  assert.equal(again.count("snapshot"), 0, "nothing is sent twice");
  for (const id of ["0000000000000000.1", "nonsense", `${last?.split(".")[0]}.999999`]) {
    using other = await by.stream(id);
    await other.until("everything", () => other.count("snapshot") === 1);
  }
});

test("fifty boards get the same, compressed or not, and one that does not read holds nobody up and is cut to the newest [80.C25 80.I9]", async () => {
  fleet.nodes = 400;
  fleet.temperature = 60;
  const slow = await openSlow(by.cookie);
  const boards = await Promise.all(
    Array.from({ length: 50 }, (_, at) => by.stream(undefined, at % 2 === 0 ? "gzip" : "identity")),
  );
  await Promise.all(boards.map((board) => board.until("the first word", () => board.count("snapshot") === 1, 20_000)));
  const used = process.memoryUsage().rss;
  for (let round = 61; round <= 64; round += 1) {
    fleet.temperature = round;
    await Promise.all(
      boards.map((board) => board.until(`round ${round}`, () => temperature(board.events) === round, 20_000)),
    );
  }
  const [first] = boards.map((board) => laid(board.events));
  for (const board of boards) assert.deepEqual(laid(board.events)["gpus"], first?.["gpus"]);
  const grown = process.memoryUsage().rss - used;
  assert.ok(grown < 400 * 1024 * 1024, `${Math.round(grown / 1024 / 1024)} MiB`);
  for (const board of boards) board[Symbol.dispose]();
  slow.destroy();
  fleet.nodes = 3;
  const page = await (await fetch(`${control.url}/metrics`)).text();
  assert.match(page, /^yardmaster_boards_open \d+$/m);
  assert.match(page, /^yardmaster_board_sent_bytes_total \d+$/m);
});

/** A reader that takes the head and nothing behind it. */
function openSlow(cookie: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const req = request(`${control.url}/board/api/stream`, { headers: { cookie } }, (res) => {
      res.pause();
      resolve(res);
    });
    req.on("error", reject);
    req.end();
  });
}

test("whoever looks after money alone is told of nothing else [60.K2]", async () => {
  const approver = await signIn(control.url, { key: keyOf("approver") });
  using stream = await approver.stream();
  await stream.until("the first word", () => stream.count("snapshot") === 1);
  const told = stream.events[0]?.data as Snapshot;
  for (const [name, rows] of Object.entries(told.tables))
    if (name !== "overflow" && name !== "approvals") assert.deepEqual(rows, {}, name);
  assert.ok(!JSON.stringify(told).includes("rack-"));
  assert.equal((await approver.fetch("/v1/nodes")).status, 403);
  assert.equal((await approver.fetch("/board/api/plot?upstream=u")).status, 403);
});

test("more boards than are served are refused, and nobody who has no key gets a stream", async () => {
  assert.equal((await fetch(`${control.url}/board/api/stream`)).status, 401);
  const client = { authorization: `Bearer ${keyOf("client")}` };
  assert.equal((await fetch(`${control.url}/board/api/stream`, { headers: client })).status, 403);
  const off = new AbortController();
  const headers = { cookie: by.cookie };
  await eventually(
    "no board is left of others",
    async () => (await fetch(`${control.url}/metrics`)).text(),
    (page) => page.includes("\nyardmaster_boards_open 0\n"),
  );
  // All are held until the end: a stream that nobody holds is closed when its answer is collected.
  const opened: Response[] = [];
  for (let at = 0; at < 201; at += 1)
    opened.push(await fetch(`${control.url}/board/api/stream`, { headers, signal: off.signal }));
  assert.deepEqual([opened.filter(({ status }) => status === 200).length, opened.at(-1)?.status], [200, 503]);
  off.abort();
});
