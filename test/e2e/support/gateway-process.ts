import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { freePort } from "../../../src/testing/servers/server-process.ts";
import type { HealthPage, UpstreamHealth } from "./health.ts";
import { configText, OPERATOR_KEY, reach, runProgram, type RunningProgram } from "./program.ts";

/** A gateway as a process that follows control planes, always at the same address. */
export class GatewayProcess implements AsyncDisposable {
  readonly name: string;
  readonly at: ReturnType<typeof reach>;
  readonly #config: string;
  readonly #env: Record<string, string>;
  #program: RunningProgram | null = null;
  #said = "";

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
    this.#config = made.config;
    this.#env = made.env;
  }

  get log(): string {
    return this.#said + (this.#program?.err ?? "");
  }

  async start(): Promise<void> {
    this.#program = runProgram(["gateway", "--config", this.#config, "--log-format", "json"], { env: this.#env });
    await this.#program.ready();
  }

  async kill(): Promise<void> {
    const program = this.#program;
    if (program === null) return;
    this.#program = null;
    await program[Symbol.asyncDispose]();
    this.#said += program.err;
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
