import { resolve } from "node:path";
import { readArgs, readRoleFlags, ROLE_OPTIONS, ROLE_OPTIONS_HELP } from "../cli/args.ts";
import { EXIT, type Command } from "../cli/cli-io.ts";
import { upstreamConfig } from "../contract/config-schema.ts";
import type { EngineName, GatewayConfig } from "../contract/gateway-config.ts";
import { resolveUpstream } from "../contract/resolve-config.ts";
import { startSimEngine } from "../sim-engine/sim-engine.ts";
import { findEngines } from "./find-engines.ts";
import type { ProcessPorts } from "./process-ports.ts";
import { startRealEngine } from "./real-engine.ts";
import { serveGateway } from "./serve-gateway.ts";
import { makeSessionKey, removeOperatorKey, writeOperatorKey, type SessionKey } from "./session-keys.ts";
import { writeStarterFile } from "./starter-file.ts";

const SIM = { model: "sim-model", slots: 8, prefillTps: 5_000, decodeTps: 50, seed: 1 } as const;
const REAL = { model: "smollm2-135m", slots: 2, contextTokens: 4_096, threads: 2 } as const;

/** What serves requests while the file names no upstream, and the words for it. */
interface Demo {
  readonly upstreams: GatewayConfig["upstreams"];
  readonly model: string;
  readonly told: string;
  readonly close: () => Promise<void>;
}

const HELP = `usage: yardmaster up [options]

Everything on this machine in one process. Without a configuration file it writes a first one; without an upstream in it,
it takes an engine that runs here, or simulates one.

${ROLE_OPTIONS_HELP}  --real-engine           set up (once) and start a small real engine: llama.cpp with a 135M chat model
`;

export const upRole = (ports: () => ProcessPorts): Command => ({
  words: ["up"],
  summary: "everything on this machine in one process",
  help: HELP,
  run: async (args) => {
    const { values, given } = readArgs(
      args,
      { ...ROLE_OPTIONS, "real-engine": { type: "boolean", default: false } },
      { names: [] },
    );
    return runUp(readRoleFlags(values, given), values["real-engine"], ports());
  },
});

async function runUp(flags: ReturnType<typeof readRoleFlags>, real: boolean, ports: ProcessPorts): Promise<number> {
  const { io } = ports;
  const fresh = flags.configGiven ? false : await writeStarterFile(flags.configPath);
  const demo = await startDemo(real, ports);
  if (demo === null) return EXIT.failed;
  const client = makeSessionKey("one-time", "client");
  const operator = makeSessionKey("local-operator", "admin");
  let dataDir: string | undefined;
  const code = await serveGateway(
    {
      flags,
      extend: (config) => (config.upstreams.length === 0 ? { ...config, upstreams: demo.upstreams } : config),
      standIn: true,
      sessionKeys: [client.key, operator.key],
      onReady: (gateway, config) => {
        io.out(`yardmaster up ready listen=${gateway.address} board=none version=${ports.version}\n`);
        dataDir = config.dataDir;
        void writeOperatorKey(config.dataDir, operator.secret);
        io.out(welcome(gateway.address, config, demo, client, { path: resolve(flags.configPath), fresh }));
      },
      onStopped: demo.close,
    },
    ports,
  );
  // A start that failed has not called `onStopped`; closing twice does no harm.
  await demo.close();
  if (dataDir !== undefined) await removeOperatorKey(dataDir);
  return code;
}

async function startDemo(real: boolean, ports: ProcessPorts): Promise<Demo | null> {
  const { io } = ports;
  if (real) return startRealDemo(ports);
  const [found] = await findEngines(io.clock);
  const model = found?.models[0];
  if (found !== undefined && model !== undefined) {
    return {
      upstreams: [demoUpstream("found", found.engine, found.models, 4, found.url)],
      model,
      told: `a real engine was found: ${found.engine} at ${found.url}, serving ${model}`,
      close: () => Promise.resolve(),
    };
  }
  const sim = await startSimEngine({
    models: [SIM.model],
    dialect: "vllm",
    slots: SIM.slots,
    prefillTps: SIM.prefillTps,
    decodeTps: SIM.decodeTps,
    seed: SIM.seed,
    clock: io.clock,
  });
  return {
    upstreams: [demoUpstream("demo", "vllm", [SIM.model], SIM.slots, sim.url)],
    model: SIM.model,
    told: `no real engine was found, so one is SIMULATED at ${sim.url} (its words mean nothing); with --real-engine a small real one is set up`,
    close: () => sim.close(),
  };
}

async function startRealDemo(ports: ProcessPorts): Promise<Demo | null> {
  const { io } = ports;
  const outcome = await startRealEngine(
    {
      clock: io.clock,
      slots: REAL.slots,
      contextTokens: REAL.contextTokens,
      threads: REAL.threads,
      modelName: REAL.model,
      onProgress: (line) => io.err(`real engine: ${line}\n`),
    },
    ports.stop,
  );
  if (outcome.kind === "unavailable") {
    io.err(`yardmaster up: the real engine can't be had here: ${outcome.why}\n`);
    return null;
  }
  const { engine } = outcome;
  return {
    upstreams: [demoUpstream("real", "llama.cpp", [engine.modelName], REAL.slots, engine.url)],
    model: engine.modelName,
    told: `a real engine runs: llama.cpp at ${engine.url} (process ${engine.pid}), serving ${engine.modelName}`,
    close: () => engine.close(),
  };
}

const demoUpstream = (
  id: string,
  engine: EngineName,
  models: readonly string[],
  slots: number,
  url: string,
): GatewayConfig["upstreams"][number] =>
  resolveUpstream(upstreamConfig.parse({ id, engine, models, slots, endpoints: [{ url }] }), {});

function welcome(
  address: string,
  config: GatewayConfig,
  demo: Demo,
  client: SessionKey,
  file: { path: string; fresh: boolean },
): string {
  const shown = config.upstreams.find((upstream) => upstream.models.length > 0 && upstream.kind === "openai");
  const model = config.upstreams === demo.upstreams ? demo.model : (shown?.models[0] ?? "MODEL");
  const engines =
    config.upstreams === demo.upstreams
      ? demo.told
      : config.upstreams.map((upstream) => `${upstream.id} (${upstream.endpoints.length} endpoints)`).join(", ");
  const body = JSON.stringify({ model, stream: true, messages: [{ role: "user", content: "Say hello." }] });
  return `
  gateway   http://${address}/v1 (OpenAI-compatible), in this process
  engine    ${engines}
  key       ${client.secret.reveal()}
            (one-time: it ends with this process; \`bin/yardmaster key new --id NAME\` makes a lasting one)
  config    ${file.path}${file.fresh ? " (written just now)" : ""}
            To add your engine, edit \`upstreams\` there; a valid change is taken over at once.
  try it

curl -N http://${address}/v1/chat/completions -H "Authorization: Bearer ${client.secret.reveal()}" -H "Content-Type: application/json" -d '${body.replaceAll("'", "'\\''")}'

  Ctrl-C drains and stops.
`;
}
