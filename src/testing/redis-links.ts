import { RedisLink } from "../coord/redis/redis-link.ts";
import { systemClock } from "../kernel/clock.ts";
import { silentLogger } from "../kernel/log.ts";
import { seededRandom } from "../kernel/random.ts";
import { Secret } from "../kernel/secret.ts";

export const linkPorts = (): ConstructorParameters<typeof RedisLink>[1] => ({
  clock: systemClock,
  random: seededRandom(1),
  log: silentLogger,
});

/** A gateway's way to a server, open. A step's time is for a loaded machine. */
export async function openRedisLink(url: string, keyPrefix: string, timeoutMs: number): Promise<RedisLink> {
  const link = new RedisLink({ url: new Secret(url), timeoutMs, keyPrefix }, linkPorts());
  await link.open();
  return link;
}
