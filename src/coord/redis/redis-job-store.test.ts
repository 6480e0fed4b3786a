import { after } from "node:test";
import { systemClock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { seededRandom } from "../../kernel/random.ts";
import { Secret } from "../../kernel/secret.ts";
import { startRedis } from "../../testing/servers/redis-server.ts";
import { jobStoreSuite } from "../jobs/job-store.conformance.ts";
import { openRedisJobStore } from "./redis-job-store.ts";
import { RedisLink } from "./redis-link.ts";

const server = await startRedis();
const links: RedisLink[] = [];
after(async () => {
  for (const link of links) link.close();
  await server.close();
});

let prefixes = 0;
/** A loaded machine must not look like a dead server where that is not the question. */
const TIMEOUT_MS = 2_000;

jobStoreSuite("a real Redis", () => {
  const keyPrefix = `t${process.pid}-${(prefixes += 1)}`;
  return Promise.resolve({
    async open(limits = {}) {
      const deps = { clock: systemClock, random: seededRandom(1), log: silentLogger };
      const link = new RedisLink({ url: new Secret(server.url), timeoutMs: TIMEOUT_MS, keyPrefix }, deps);
      links.push(link);
      await link.open();
      return openRedisJobStore({
        link,
        limits: { jobsMax: 1_000, bytesMax: 10_000_000, ...limits },
        clock: systemClock,
        random: seededRandom(2),
        replicas: 0,
        replicasMs: 100,
        waitingLink: null,
      });
    },
  });
});
