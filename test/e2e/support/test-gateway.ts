import { createHash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stringify } from "yaml";
import { formatProblems } from "../../../src/config/config-problem.ts";
import { parseConfigText } from "../../../src/config/load-config.ts";
import type { AuditPage } from "../../../src/contract/audit-event.ts";
import type { GatewayConfig } from "../../../src/contract/gateway-config.ts";
import { ROLES, type Role } from "../../../src/contract/roles.ts";
import { Gateway } from "../../../src/gateway/gateway.ts";
import { systemClock, type Clock } from "../../../src/kernel/clock.ts";
import { seededRandom } from "../../../src/kernel/random.ts";
import { KeptLog } from "../../../src/testing/kept-log.ts";

import type { HealthPage } from "./health.ts";

/** In the words of the configuration file. */
export interface TestGatewayOptions {
  readonly upstreams: readonly Record<string, unknown>[];
  /** Added to the file's top level. */
  readonly file?: Record<string, unknown>;
  /** Further keys; `key` is the plain one. */
  readonly keys?: readonly (Record<string, unknown> & { readonly id: string; readonly key: string })[];
  readonly env?: Record<string, string>;
  /** Default: the system's. With a virtual one see `passTime`. */
  readonly clock?: Clock;
}

export interface TestGateway {
  readonly url: string;
  readonly port: number;
  readonly gateway: Gateway;
  /** A plain key for each role; the client's may use all classes. */
  readonly keys: Readonly<Record<Role, string>>;
  /** Bearer header of the client key. */
  readonly auth: Readonly<Record<string, string>>;
  readonly logLines: readonly string[];
  configOf(options: TestGatewayOptions): GatewayConfig;
  health(): Promise<HealthPage>;
  audit(query?: string): Promise<AuditPage>;
  /** Value of one series of `/metrics`, undefined when it is not there. */
  metric(series: string): Promise<number | undefined>;
  stop(): Promise<void>;
}

const hashOf = (key: string): string => `sha256:${createHash("sha256").update(key).digest("hex")}`;
const plainKeyOf = (role: Role): string => `CANARY-${role}-0123456789abcdef0123456789abcdef`;

/** A gateway in this process on a free loopback port, with everything on that a user has on. */
export async function startTestGateway(options: TestGatewayOptions): Promise<TestGateway> {
  const dataDir = await mkdtemp(join(tmpdir(), "yardmaster-test-"));
  const keys = Object.fromEntries(ROLES.map((role) => [role, plainKeyOf(role)])) as Record<Role, string>;
  const configOf = (from: TestGatewayOptions): GatewayConfig => {
    const file = {
      listen: "127.0.0.1:0",
      data_dir: dataDir,
      auth: {
        mode: "keys",
        keys: [
          ...ROLES.map((role) => ({
            id: `test-${role}`,
            hash: hashOf(keys[role]),
            role,
            classes: ["interactive", "system", "batch"],
          })),
          ...(from.keys ?? []).map(({ key, ...rest }) => ({ ...rest, hash: hashOf(key) })),
        ],
      },
      ...from.file,
      upstreams: from.upstreams,
    };
    const loaded = parseConfigText(stringify(file), "test.yaml", from.env ?? {});
    if (loaded.kind === "invalid") throw new Error(formatProblems(loaded.problems));
    return loaded.config;
  };
  const clock = options.clock ?? systemClock;
  const log = new KeptLog(clock);
  const gateway = await Gateway.start({
    config: configOf(options),
    clock,
    random: seededRandom(1),
    log: log.logger,
    version: "0.0.0-test",
  });
  const url = `http://${gateway.address}`;
  const asOperator = { authorization: `Bearer ${keys.operator}` };
  const getJson = async <T>(path: string): Promise<T> =>
    (await (await fetch(url + path, { headers: asOperator })).json()) as T;
  return {
    url,
    port: Number(gateway.address.split(":").at(-1)),
    gateway,
    keys,
    auth: { authorization: `Bearer ${keys.client}` },
    get logLines() {
      return log.lines;
    },
    configOf,
    health: () => getJson("/health"),
    audit: (query = "") => getJson(`/admin/audit${query}`),
    metric: async (series) => {
      const page = await (await fetch(`${url}/metrics`, { headers: asOperator })).text();
      const line = page.split("\n").find((candidate) => candidate.startsWith(`${series} `));
      return line === undefined ? undefined : Number(line.slice(series.length + 1));
    },
    stop: async () => {
      const hurry = new AbortController();
      hurry.abort(new Error("the test is over"));
      await gateway.stop(hurry.signal);
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
