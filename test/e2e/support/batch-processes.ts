import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type OpenAI from "openai";
import { stringify } from "yaml";
import type { SimEngine } from "../../../src/sim-engine/sim-engine.ts";
import { aClient } from "./batches.ts";
import { YardmasterProcess } from "./yardmaster-process.ts";

const KEY = "CANARY-client-0123456789abcdef";

export interface BatchProcess {
  readonly client: OpenAI;
  readonly pid: number;
  kill(): Promise<void>;
}

/** Gateways as processes, with a data folder for each name. */
export class BatchProcesses implements AsyncDisposable {
  readonly #folder: string;
  readonly #more: Record<string, unknown>;
  readonly #started: YardmasterProcess[] = [];

  readonly #engine: SimEngine;

  private constructor(engine: SimEngine, folder: string, more: Record<string, unknown>) {
    this.#engine = engine;
    this.#folder = folder;
    this.#more = more;
  }

  static async make(engine: SimEngine, more: Record<string, unknown> = {}): Promise<BatchProcesses> {
    return new BatchProcesses(engine, await mkdtemp(join(tmpdir(), "yardmaster-batches-")), more);
  }

  /** `name` is also its data folder. */
  async start(name: string): Promise<BatchProcess> {
    const config = join(this.#folder, `${name}.yaml`);
    const hash = `sha256:${createHash("sha256").update(KEY).digest("hex")}`;
    const file = {
      listen: "127.0.0.1:0",
      data_dir: join(this.#folder, name),
      auth: { keys: [{ id: "c", hash, role: "client", classes: ["batch"] }] },
      jobs: { claim_ttl_s: 2 },
      upstreams: [
        { id: "u", models: ["m"], engine: "vllm", slots: 64, batch_max: 64, endpoints: [{ url: this.#engine.url }] },
      ],
      ...this.#more,
    };
    await writeFile(config, stringify(file));
    const program = new YardmasterProcess(["gateway", "--config", config], { cwd: this.#folder });
    this.#started.push(program);
    const port = Number((await program.ready()).split(":").at(-1));
    const kill = async (): Promise<void> => {
      program.child.kill("SIGKILL");
      await program.ended;
    };
    return { client: aClient(port, KEY), pid: program.child.pid ?? 0, kill };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const program of this.#started) await program[Symbol.asyncDispose]();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
