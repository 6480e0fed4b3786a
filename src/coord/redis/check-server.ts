import { replyErrorKind } from "../../decide/coordination/reply-error.ts";
import type { RedisConnection } from "./redis-connection.ts";

/** What was found out about a server; asked of each new connection, since another server may be behind the address. */
export interface ServerFacts {
  readonly server: "redis" | "valkey";
  /** As the server says; null where it does not. */
  readonly version: string | null;
  /** `maxmemory-policy`; null where the server does not tell. */
  readonly policy: string | null;
  /** How long it runs already; null where it does not tell. */
  readonly upMs: number | null;
  /** Why jobs must not be entrusted to it, with the fix; null when they may. */
  readonly unfitForJobs: string | null;
}

const field = (info: string, name: string): string | null =>
  new RegExp(`^${name}:(.*?)\\r?$`, "m").exec(info)?.[1] ?? null;

const secondsOf = (text: string | null): number | null => (text === null ? null : Number(text) * 1_000);

/** Reads INFO, and CONFIG where INFO is denied; what neither tells stays unknown. */
export async function readServerFacts(connection: RedisConnection): Promise<ServerFacts> {
  const info = await connection.send("INFO", []);
  const text = info.kind === "reply" && typeof info.reply === "string" ? info.reply : "";
  const policy = field(text, "maxmemory_policy") ?? (await readPolicy(connection));
  const valkey = field(text, "server_name") === "valkey" || field(text, "valkey_version") !== null;
  return {
    server: valkey ? "valkey" : "redis",
    version: field(text, valkey ? "valkey_version" : "redis_version"),
    policy,
    upMs: secondsOf(field(text, "uptime_in_seconds")),
    unfitForJobs: judgePolicy(policy),
  };
}

async function readPolicy(connection: RedisConnection): Promise<string | null> {
  const config = await connection.send("CONFIG", ["GET", "maxmemory-policy"]);
  if (config.kind !== "reply" || !Array.isArray(config.reply)) return null;
  return typeof config.reply[1] === "string" ? config.reply[1] : null;
}

function judgePolicy(policy: string | null): string | null {
  if (policy === null)
    return "the server tells its `maxmemory-policy` neither by INFO nor by CONFIG: allow its user one of them, and see that the policy is `noeviction`";
  if (policy === "noeviction") return null;
  return `its \`maxmemory-policy\` is \`${policy}\`, under which it throws away what was entrusted to it: set \`maxmemory-policy noeviction\`, or use a Redis apart from the cache`;
}

/** In words, with the fix, why a refused probe means that this server can never do; undefined when it may do later. */
export function unsuitable(message: string): string | undefined {
  if (replyErrorKind(message) === "denied")
    return `its user lacks a right (${message}); needed are EVAL, EVALSHA, PUBLISH, SUBSCRIBE and the commands on sorted sets, hashes and strings for keys and channels under \`key_prefix\``;
  if (/unknown command/i.test(message))
    return `it lacks a command (${message}); needed is Redis or Valkey from version 7 with Lua scripts`;
  if (/unexpected symbol near '#'|compiling script/i.test(message))
    return `it can't read the scripts (${message}); needed is Redis or Valkey from version 7`;
  if (replyErrorKind(message) === "moved")
    return `it is a node of a cluster that does not hold the keys (${message}); name a single primary, or a proxy that speaks for the whole cluster`;
  return undefined;
}
