import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent } from "../../../src/agent/agent.ts";
import { agentSection, type AgentSection } from "../../../src/contract/agent-schema.ts";
import type { ControlSection } from "../../../src/contract/control-schema.ts";
import type { NodeAnswer, ReplicaAnswer } from "../../../src/contract/control-api.ts";
import { resolveAgent } from "../../../src/contract/resolve-agent.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { BatchedLogger } from "../../../src/kernel/log.ts";
import { seededRandom } from "../../../src/kernel/random.ts";
import { Secret } from "../../../src/kernel/secret.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { applyCatalog } from "./fake-fleet.ts";
import { engineBlock, PORTS, YARDMASTER } from "./test-agent.ts";
import { startTestControl, type TestControl } from "./test-control.ts";

const never = new AbortController().signal;
/** Engines that are simulated start in a second or two; on a busy machine several at once take longer. */
export const START_MS = 40_000;

/** Times that scale the product's own down, so that a test sees a node lost within seconds. */
export const QUICK: Partial<ControlSection> = {
  unreachable_after_s: 1,
  lost_after_s: 3,
  settle_s: 3,
  stop_grace_s: 2,
  drain_grace_s: 1,
};

export interface LiveAgent {
  readonly name: string;
  readonly folder: string;
  log(): string;
  start(): Promise<void>;
  /** Its engines stay, as when its process was killed. */
  stop(): Promise<void>;
}

/** One catalog entry of a simulated model. */
export const simModel = (name: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name,
  slots_per_replica: 4,
  profiles: [{ engine: "sim", cpu: { cores: 1, memory_gb: 0.001 }, args: { slots: 4 } }],
  ...more,
});

/** Agents and control planes in this process, engines as processes of their own. */
export class LiveWorld implements AsyncDisposable {
  readonly folder: string;
  readonly controls: TestControl[] = [];
  readonly #running = new Map<string, Agent>();
  readonly #undo: (() => Promise<void>)[] = [];

  static async start(control: Partial<ControlSection> = QUICK): Promise<LiveWorld> {
    const world = new LiveWorld(await mkdtemp(join(tmpdir(), "yardmaster-live-")));
    await world.addControl({ control });
    await eventually(
      "the lead",
      () => world.control.plane.leading,
      (leading) => leading,
    );
    return world;
  }

  private constructor(folder: string) {
    this.folder = folder;
  }

  get control(): TestControl {
    const [first] = this.controls;
    if (first === undefined) throw new Error("there is no control plane");
    return first;
  }

  async addControl(options: Parameters<typeof startTestControl>[0]): Promise<TestControl> {
    const control = await startTestControl({
      dataDir: join(this.folder, `control-${this.controls.length}`),
      ...options,
    });
    this.controls.push(control);
    return control;
  }

  /** Enrolled by a token, and started. */
  async addAgent(name: string, over: Partial<AgentSection> = {}): Promise<LiveAgent> {
    const { body } = await this.control.ask<{ token: string }>("POST", "/v1/enrolment-tokens", {
      body: JSON.stringify({ node: name }),
    });
    const first = engineBlock();
    const folder = join(this.folder, name);
    let text = "";
    const section: Partial<AgentSection> = {
      name,
      control: this.controls.map(({ url }) => url.replace("http", "ws")) as [string],
      weights_dir: join(folder, "weights"),
      engine_ports: `${first}-${first + PORTS - 1}`,
      nvidia_smi: "/nowhere/nvidia-smi",
      ...over,
    };
    const agent: LiveAgent = {
      name,
      folder,
      log: () => text,
      start: async () => {
        const started = await Agent.start({
          settings: resolveAgent(agentSection.parse(section), name),
          folder: join(folder, "agent"),
          clock: systemClock,
          random: seededRandom(1),
          log: new BatchedLogger({
            clock: systemClock,
            sink: { write: (line) => (text += line) },
            level: "debug",
            format: "json",
          }),
          env: { PATH: process.env["PATH"], HOME: folder, NODE_OPTIONS: "--no-warnings" },
          version: "test",
          token: new Secret(body.token),
          self: [YARDMASTER],
        });
        this.#running.set(name, started);
      },
      stop: async () => {
        await this.#running.get(name)?.stop({ engines: "leave" }, never);
        this.#running.delete(name);
      },
    };
    this.#undo.push(async () => {
      // Whatever an agent left behind is ended by its next one.
      if (!this.#running.has(name)) await agent.start();
      await this.#running.get(name)?.stop({ engines: "stop" }, never);
    });
    await agent.start();
    return agent;
  }

  apply(...models: readonly Record<string, unknown>[]): Promise<void> {
    return applyCatalog(this.control, models);
  }

  async replicas(): Promise<readonly ReplicaAnswer[]> {
    return (await this.control.ask<{ replicas: ReplicaAnswer[] }>("GET", "/v1/replicas")).body.replicas;
  }

  async nodes(): Promise<readonly NodeAnswer[]> {
    return (await this.control.ask<{ nodes: NodeAnswer[] }>("GET", "/v1/nodes")).body.nodes;
  }

  untilReplicas(
    what: string,
    accept: (replicas: readonly ReplicaAnswer[]) => boolean,
    ms = START_MS,
  ): Promise<readonly ReplicaAnswer[]> {
    return eventually(what, () => this.replicas(), accept, ms);
  }

  untilNodes(
    what: string,
    accept: (nodes: readonly NodeAnswer[]) => boolean,
    ms = START_MS,
  ): Promise<readonly NodeAnswer[]> {
    return eventually(what, () => this.nodes(), accept, ms);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const undo of this.#undo.toReversed()) await undo();
    for (const control of this.controls) await control[Symbol.asyncDispose]();
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
