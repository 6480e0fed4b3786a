import { after, before } from "node:test";
import { Redis } from "ioredis";
import type { RedisLink } from "../../coord/redis/redis-link.ts";
import { openRedisLink } from "../redis-links.ts";
import { OwnRedis } from "./redis-server.ts";

export interface OwnRedisLink {
  readonly admin: Redis;
  readonly link: RedisLink;
}

/** A server for the tests of one file, with a gateway's way to it and a client beside that. There from the first test to the last. */
export function ownRedisLink(): OwnRedisLink {
  let made: (OwnRedisLink & { readonly server: OwnRedis }) | null = null;
  const there = (): OwnRedisLink => {
    if (made === null) throw new Error("the server is there while tests run");
    return made;
  };
  before(async () => {
    const server = await OwnRedis.start();
    made = { server, admin: new Redis(server.url), link: await openRedisLink(server.url, "t", 5_000) };
  });
  after(async () => {
    made?.link.close();
    made?.admin.disconnect();
    await made?.server.close();
  });
  return {
    get admin() {
      return there().admin;
    },
    get link() {
      return there().link;
    },
  };
}
