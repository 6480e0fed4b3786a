import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import type { StatusView } from "../contract/control-api.ts";
import { captureIo } from "../testing/capture-io.ts";
import { cliCommands } from "./commands.ts";
import { usageBar } from "./ctl-status.ts";
import { dispatch } from "./dispatch.ts";

const row = (part: Partial<StatusView["gpus"][number]>): StatusView["gpus"][number] => ({
  class: "h200",
  cards: 8,
  used: 0,
  kept: 0,
  free: 0,
  sick: 0,
  unknown: 0,
  ...part,
});

for (const [name, part, bar] of [
  ["half of it in use", { used: 4, free: 4 }, "##########.........."],
  ["nothing in use", { free: 8 }, "...................."],
  ["all in use", { used: 8 }, "####################"],
  ["all in use, in thirds", { cards: 3, used: 3 }, "####################"],
  ["one sick card, which is neither used nor free", { used: 4, sick: 1, free: 3 }, "##########!!........"],
  ["a card that is kept for a replacement", { used: 4, kept: 2, free: 2 }, "##########=====....."],
  ["cards of a silent node", { cards: 4, used: 1, unknown: 2, free: 1 }, "#####??????????....."],
  ["one of very many", { cards: 1_000, used: 1, sick: 1, free: 998 }, "#!.................."],
  ["no card", { cards: 0 }, "...................."],
] as const)
  test(`the bar of a class with ${name} [40.V1]`, () => assert.equal(usageBar(row(part)), bar));

const STATUS: StatusView = {
  version: "1",
  cluster_id: "c",
  store: "postgres",
  leader: { self: "b#2", role: "standby", epoch: null, leader: { holder: "a#1", epoch: 7 }, store_silent_s: null },
  catalog: { revision: 3, models: 4, held: null, refused: null },
  restored: false,
  nodes: { ready: 2, lost: 1 },
  gpus: [row({ used: 4, sick: 1, free: 3 }), row({ class: "a40", cards: 2, used: 0, free: 2 })],
  replicas: { ready: 4, starting: 1 },
  troubles: [{ model: "big", why: "fits on no node: rack-1: needs h200, and has a40" }],
  fabrics: [{ fabric: "nv-1", nodes: 2, free: 1, unknown: 0 }],
  not_asked: Array.from({ length: 12 }, (_, at) => ({
    model: `idle-${at}`,
    replicas: 1,
    idle_s: 9_000 - at,
    since: "2026-01-01T00:00:00.000Z",
  })),
  use_unknown: 2,
  gateways: { connected: 2, behind: 1, waiting: 3, in_flight: 40 },
  jobs: null,
};

async function shown(body: StatusView, columns: number | null, ...more: readonly string[]): Promise<string> {
  const server = createServer((_, res) => void res.end(JSON.stringify(body)));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { io, output } = captureIo({}, new AbortController().signal, columns);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    assert.equal(
      await dispatch(["ctl", "status", "--url", url, "--data-dir", "/nowhere", ...more], cliCommands, "0", io),
      0,
    );
  } finally {
    server.closeAllConnections();
    server.close();
  }
  return output().out;
}

test("the status tells capacity, fabrics, what waits and why, what nobody asks for and since when, leader, gateways and jobs, in the width of a terminal [40.V1]", async () => {
  const text = await shown(STATUS, 80);
  for (const line of [
    /^leader {4}a#1 \(epoch 7\)$/m,
    /^nodes {5}2 ready, 1 lost$/m,
    /^gateways {2}2 connected, 1 behind, 40 calls in flight, 3 wait for a start$/m,
    /^jobs {6}-$/m,
    /^h200 +##########!!\.{8} +4 +0 +3 +1 +0$/m,
    /^nv-1 +2 +1 +0$/m,
    /^big +fits on no node: rack-1: needs h200, and has a40$/m,
    /^idle-0 +1 +9000 s +2026-01-01T00:00:00\.000Z$/m,
    /^and 2 more$/m,
    /^of 2 models with ready replicas it is not known when they were last asked for$/m,
  ])
    assert.match(text, line);
  for (const line of text.split("\n")) assert.ok(line.length <= 80, line);
  assert.match(await shown(STATUS, 80, "-o", "wide"), /^idle-11 /m);
  assert.match(await shown({ ...STATUS, jobs: { queued: 2, running: 1 } }, null), /^jobs {6}2 queued, 1 running$/m);
  const quiet = { ...STATUS, not_asked: [], use_unknown: 0, troubles: [], fabrics: [], gpus: [] };
  assert.equal((await shown(quiet, null)).split("\n").length, 8);
});
