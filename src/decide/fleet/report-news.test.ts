import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeReport } from "../../contract/fleet.ts";
import { aModel, aNodeReport, aReplicaDoc, aShard, someGpus } from "../../testing/fleet-builders.ts";
import { reportNews } from "./report-news.ts";

const shard = aShard(aReplicaDoc("r1", aModel("m"), "a"));
const before = aNodeReport("a", { shards: [shard] });

const rows: readonly { readonly name: string; readonly part: Partial<NodeReport>; readonly news: boolean }[] = [
  { name: "the same again", part: {}, news: false },
  {
    name: "other readings",
    part: { memoryFreeMib: 1, gpus: someGpus("a", 8, { usedMib: 7, temperatureC: 70 }) },
    news: false,
  },
  {
    name: "a shard that has been so for longer",
    part: { shards: [{ ...shard, since: 90_000, hostUsedMib: 5 }] },
    news: false,
  },
  { name: "a shard in another state", part: { shards: [{ ...shard, state: "failed" }] }, news: true },
  { name: "a shard less", part: { shards: [] }, news: true },
  { name: "a sick card", part: { gpus: someGpus("a", 8, { health: "sick" }) }, news: true },
  { name: "a card less", part: { gpus: someGpus("a", 7) }, news: true },
  { name: "another boot", part: { bootId: "boot-2" }, news: true },
  {
    name: "another leader that is obeyed",
    part: { highestEpoch: { clusterId: "c", epoch: 2, holder: "h" } },
    news: true,
  },
];
for (const { name, part, news } of rows)
  test(`a report with ${name} is ${news ? "" : "no "}reason for a pass at once`, () =>
    assert.equal(reportNews({ ...before, ...part }) !== reportNews(before), news));
