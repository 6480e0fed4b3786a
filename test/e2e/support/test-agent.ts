import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent, type AgentOptions } from "../../../src/agent/agent.ts";
import { agentSection, type AgentSection } from "../../../src/contract/agent-schema.ts";
import type { StartVerb } from "../../../src/contract/agent-link.ts";
import { resolveAgent } from "../../../src/contract/resolve-agent.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { seededRandom } from "../../../src/kernel/random.ts";
import { Secret } from "../../../src/kernel/secret.ts";
import { aStart, type StartOver } from "../../../src/testing/a-start.ts";
import { FakeControlPlane, type FakeControlOptions } from "../../../src/testing/fake-control-plane.ts";
import { aGpu, fakeNvidiaSmi, type FakeNvidiaSmi, type FakeSmiState } from "../../../src/testing/fake-nvidia-smi.ts";
import { KeptLog } from "../../../src/testing/kept-log.ts";

const ROOT = join(import.meta.dirname, "../../..");
export const YARDMASTER = join(ROOT, "bin/yardmaster");
const HOSTILE = join(ROOT, "src/testing/hostile-engine.mjs");
export const TOKEN = "CANARY-token-0123456789abcdef";
/** What the engines of this test file are asked with. */
export const ENGINE_KEY = `CANARY-engine-key-${process.pid}-0123456789`;
const never = new AbortController().signal;

/** Below the numbers that systems give to outgoing connections, and apart from what other test files use at the time. */
export const PORTS = 10;
const BLOCKS = 2_000;
let worlds = 0;
export const engineBlock = (): number => 10_000 + ((process.pid * 41 + worlds++) % BLOCKS) * PORTS;

export interface AgentWorld extends AsyncDisposable {
  readonly folder: string;
  /** The program that `command` profiles may start here. */
  readonly hostile: string;
  readonly smi: FakeNvidiaSmi | null;
  readonly control: FakeControlPlane;
  /** The log of all agents so far. */
  log(): string;
  /** Of `yardmaster.yaml`, for agents that are processes. */
  readonly section: Partial<AgentSection>;
  startAgent(over?: Partial<AgentOptions>): Promise<Agent>;
  stopAgent(): Promise<void>;
  /** Started by the control plane, on the hostile engine. */
  hostileStart(words: readonly string[], over?: StartOver): StartVerb;
}

/** A folder, a control plane and a node of one test; the agent is enrolled and the control plane leads. */
export async function agentWorld(
  options: {
    readonly gpus?: FakeSmiState;
    readonly control?: FakeControlOptions;
    readonly agent?: Partial<AgentSection>;
  } = {},
): Promise<AgentWorld> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-agent-"));
  const hostile = join(folder, "hostile-engine");
  await writeFile(hostile, `#!/bin/sh\nexec "${process.execPath}" "${HOSTILE}" "$@"\n`);
  await chmod(hostile, 0o755);
  const smi = options.gpus === undefined ? null : fakeNvidiaSmi(folder, options.gpus);
  const control = await FakeControlPlane.start({ tokens: [TOKEN], ...options.control });
  const first = engineBlock();
  const section: Partial<AgentSection> = {
    name: "node-a",
    control: [control.url],
    weights_dir: join(folder, "weights"),
    engine_ports: `${first}-${first + PORTS - 1}`,
    commands: [hostile],
    ...(smi === null ? { nvidia_smi: "/nowhere/nvidia-smi" } : { nvidia_smi: smi.path }),
    ...options.agent,
  };
  let agent: Agent | null = null;
  const log = new KeptLog();
  const stopAgent = async (): Promise<void> => {
    await agent?.stop({ engines: "leave" }, never);
    agent = null;
  };
  const startAgent = async (over: Partial<AgentOptions> = {}): Promise<Agent> => {
    const started = await Agent.start({
      settings: resolveAgent(agentSection.parse(section), "host"),
      folder: join(folder, "agent"),
      clock: systemClock,
      random: seededRandom(1),
      log: log.logger,
      env: { PATH: process.env["PATH"], HOME: folder, NODE_OPTIONS: "--no-warnings", CANARY: "CANARY-environment" },
      version: "test",
      token: new Secret(TOKEN),
      self: [YARDMASTER],
      ...over,
    });
    agent = started;
    return started;
  };
  return {
    folder,
    hostile,
    smi,
    control,
    section,
    log: () => log.text,
    startAgent,
    stopAgent,
    hostileStart: (words, over = {}) =>
      aStart({
        engineKey: ENGINE_KEY,
        stopGraceMs: 500,
        ...over,
        profile: { engine: "command", command: [hostile, ...words], ...over.profile },
      }),
    [Symbol.asyncDispose]: async () => {
      await agent?.stop({ engines: "stop" }, never);
      await control.close();
      await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** With an agent that runs, and a control plane that leads. */
export async function ledAgent(options: Parameters<typeof agentWorld>[0] = {}): Promise<AgentWorld> {
  const world = await agentWorld(options);
  await world.startAgent();
  await untilLed(world.control);
  return world;
}

export async function untilLed(control: FakeControlPlane, epoch = 1): Promise<void> {
  await control.nextReport();
  control.lead({ epoch });
  await control.until("the lead is followed", () => control.report?.highestEpoch?.epoch === epoch);
}

export const ONE_CARD: FakeSmiState = { gpus: [aGpu(0)] };
export const CARD = aGpu(0).uuid;
export const onCard = { classes: ["h200"], count: 1, memoryMib: 60_000 } as const;
