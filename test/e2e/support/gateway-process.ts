import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { freePort } from "../../../src/testing/servers/server-process.ts";
import type { HealthPage, UpstreamHealth } from "./health.ts";
import { configText, OPERATOR_KEY, reach } from "./program.ts";
import { ProgramRuns } from "./program-runs.ts";

/** A gateway as a process that follows control planes, always at the same address. */
export class GatewayProcess implements AsyncDisposable {
  readonly name: string;
  readonly at: ReturnType<typeof reach>;
  readonly #runs: ProgramRuns;

  static async make(options: {
    readonly name: string;
    /** Of the whole cluster. */
    readonly folder: string;
    readonly controls: readonly string[];
    readonly credential: string;
    readonly redisUrl: string;
    /** Of its file. */
    readonly upstreams: readonly Record<string, unknown>[];
  }): Promise<GatewayProcess> {
    const { name, controls, credential, redisUrl, upstreams } = options;
    const port = await freePort();
    const folder = join(options.folder, name);
    await mkdir(folder, { recursive: true });
    const config = join(folder, "yardmaster.yaml");
    const file = {
      listen: `127.0.0.1:${port}`,
      coordination: "redis",
      redis_url: redisUrl,
      // A busy machine must not look like a frozen Redis.
      coordination_timeout_ms: 2_000,
      lease_ttl_s: 5,
      gateway: { name, control: controls },
      upstreams,
    };
    await writeFile(config, configText(folder, file), { mode: 0o600 });
    return new GatewayProcess({ name, port, config, env: { YARDMASTER_TOKEN: credential, HOME: folder } });
  }

  private constructor(made: { name: string; port: number; config: string; env: Record<string, string> }) {
    this.name = made.name;
    this.at = reach(made.port);
    this.#runs = new ProgramRuns(["gateway", "--config", made.config], { env: made.env });
  }

  get log(): string {
    return this.#runs.log;
  }

  async start(): Promise<void> {
    await this.#runs.start().ready();
  }

  kill(): Promise<void> {
    return this.#runs.kill();
  }

  /** Undefined when the gateway does not answer, or has no such upstream. */
  async upstream(id: string): Promise<UpstreamHealth | undefined> {
    try {
      const headers = { authorization: `Bearer ${OPERATOR_KEY}` };
      const page = await fetch(`http://127.0.0.1:${this.at.port}/health`, { headers });
      return ((await page.json()) as HealthPage).upstreams.find((upstream) => upstream.id === id);
    } catch {
      return undefined;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }
}
