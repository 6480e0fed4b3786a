import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Redis } from "ioredis";
import { systemClock } from "../../kernel/clock.ts";
import { seededRandom } from "../../kernel/random.ts";
import { openRedisLink } from "../../testing/redis-links.ts";
import { OwnRedis, startRedis } from "../../testing/servers/redis-server.ts";
import { within } from "../../testing/wait-for.ts";
import { jobStoreSuite } from "../jobs/job-store.conformance.ts";
import type { JobStore, JobStoreLimits } from "../jobs/job-store.ts";
import { openRedisJobStore } from "./redis-job-store.ts";
import type { RedisLink } from "./redis-link.ts";

const server = await startRedis();
const links: RedisLink[] = [];
after(async () => {
  for (const link of links) link.close();
  await server.close();
});

let prefixes = 0;
/** A loaded machine must not look like a dead server where that is not the question. */
const TIMEOUT_MS = 2_000;

const newPrefix = (): string => `t${process.pid}-${(prefixes += 1)}`;

async function openLink(url: string, keyPrefix: string): Promise<RedisLink> {
  const link = await openRedisLink(url, keyPrefix, TIMEOUT_MS);
  links.push(link);
  return link;
}

const openStore = async (link: RedisLink, limits: Partial<JobStoreLimits> = {}): Promise<JobStore> =>
  openRedisJobStore({
    link,
    bytesLink: await openLink(link.settings.url.reveal(), link.settings.keyPrefix),
    limits: { jobsMax: 1_000, bytesMax: 10_000_000, ...limits },
    clock: systemClock,
    random: seededRandom(2),
    replicas: 0,
    replicasMs: 100,
    waitingLink: null,
  });

jobStoreSuite("a real Redis", () => {
  const keyPrefix = newPrefix();
  return Promise.resolve({ open: async (limits) => openStore(await openLink(server.url, keyPrefix), limits) });
});

test("whoever does not find a job knows at once that the store was emptied [20.J4 80.R4]", async () => {
  await using own = await OwnRedis.start();
  const link = await openLink(own.url, newPrefix());
  const store = await openStore(link);
  const before = store.epoch;
  assert.equal(await store.get("job_0123abcd_nobody"), undefined);
  assert.equal(store.epoch, before, "the store is the same one");
  const admin = new Redis(own.url);
  await admin.flushall();
  admin.disconnect();
  assert.equal(await store.get("job_0123abcd_nobody"), undefined);
  assert.notEqual(store.epoch, before);
  await store.close();
});

for (const when of ["before the link is open", "after it"])
  test(`a server that froze ${when} holds up no start: the store opens, and hears of jobs when it is back [80.R1]`, async () => {
    await using own = await OwnRedis.start();
    if (when.startsWith("before")) own.pause();
    const link = await openLink(own.url, newPrefix());
    own.pause();
    const store = await within("the store to open", openStore(link));
    const told = Promise.withResolvers<void>();
    using _listening = store.onChange(() => told.resolve());
    own.resume();
    await within("word that there may be jobs", told.promise);
    await store.close();
  });
