import { existsSync } from "node:fs";
import { hostname } from "node:os";
import { fileURLToPath } from "node:url";
import { Agent, agentFolder } from "../agent/agent.ts";
import { readArgs, readRoleFlags, ROLE_OPTIONS, splitList, usageError, type RoleFlags } from "../cli/args.ts";
import { EXIT, type Command } from "../cli/cli-io.ts";
import { formatProblems } from "../config/config-problem.ts";
import { loadConfigFile, parseConfigText, type LoadedConfig } from "../config/load-config.ts";
import { isSafeControlUrl, parseControlUrl } from "../contract/agent-schema.ts";
import { resolveAgent, type AgentSettings } from "../contract/resolve-agent.ts";
import { hasErrorCode } from "../kernel/errors.ts";
import { BatchedLogger } from "../kernel/log.ts";
import { systemRandom } from "../kernel/random.ts";
import { Secret } from "../kernel/secret.ts";
import type { ProcessPorts } from "./process-ports.ts";

const PROGRAM = fileURLToPath(new URL("../../bin/yardmaster", import.meta.url));

const HELP = `usage: yardmaster agent [options]

Finds this node's hardware, dials the control planes, and starts and watches the engines that they place here. It opens no
port. On SIGTERM it ends and leaves its engines running; the next agent takes them over.

  --control URL[,URL…]    control planes, over the file's (ws://HOST:PORT on loopback, wss://HOST:PORT elsewhere)
  --token TOKEN           one-time token of the node; better in the environment variable YARDMASTER_TOKEN, where others
                          on this machine can't read it
  --stop-engines          stop the engines, too, when told to end
  --config FILE           configuration (default ./yardmaster.yaml, if there is one)
  --data-dir DIR          folder for local state, over the file's (default ./data)
  --log-level LEVEL       debug, info, warn or error (default info)
  --log-format FORMAT     pretty or json (default pretty)
  --help                  this text
`;

const { listen: _, ...OPTIONS } = ROLE_OPTIONS;

export const agentRole = (ports: () => ProcessPorts): Command => ({
  words: ["agent"],
  summary: "on every node: finds the hardware, starts and watches engines",
  help: HELP,
  run: async (args) => {
    const { values, given } = readArgs(
      args,
      {
        ...OPTIONS,
        control: { type: "string" },
        token: { type: "string" },
        "stop-engines": { type: "boolean", default: false },
      },
      { names: [] },
    );
    const controls = values.control === undefined ? undefined : splitList("control", values.control);
    for (const text of controls ?? []) {
      const url = parseControlUrl(text);
      if (url === null) throw usageError(`--control: ${text} is neither ws://HOST:PORT nor wss://HOST:PORT`);
      if (!isSafeControlUrl(url)) throw usageError(`--control: ${text}: ws:// is for loopback only; use wss://`);
    }
    const flags = readRoleFlags({ ...values, listen: undefined }, given);
    return runAgent(flags, { controls, token: values.token, stopEngines: values["stop-engines"] }, ports());
  },
});

interface AgentFlags {
  readonly controls: readonly string[] | undefined;
  readonly token: string | undefined;
  readonly stopEngines: boolean;
}

/** An agent that is told all it needs by flags has no file. */
function load(flags: RoleFlags, ports: ProcessPorts): Promise<LoadedConfig> {
  const overrides = { dataDir: flags.dataDir, gateway: false };
  return flags.configGiven || existsSync(flags.configPath)
    ? loadConfigFile(flags.configPath, ports.io.env, overrides)
    : Promise.resolve(parseConfigText("upstreams: []", flags.configPath, ports.io.env, overrides));
}

async function runAgent(flags: RoleFlags, own: AgentFlags, ports: ProcessPorts): Promise<number> {
  const { io } = ports;
  const loaded = await load(flags, ports);
  if (loaded.kind === "invalid") {
    io.err(`${formatProblems(loaded.problems)}\n`);
    return EXIT.usage;
  }
  const log = new BatchedLogger({
    clock: io.clock,
    sink: { write: (text) => io.err(text) },
    level: flags.logLevel,
    format: flags.logFormat,
  });
  for (const warning of loaded.warnings) log.warn("config.warning", { message: warning });
  const settings = resolveAgent(loaded.file.agent, hostname(), { controls: own.controls });
  const token = own.token ?? io.env[settings.tokenEnv];
  let agent: Agent;
  try {
    agent = await Agent.start({
      settings,
      folder: agentFolder(loaded.config.dataDir),
      clock: io.clock,
      random: systemRandom,
      log,
      env: io.env,
      version: ports.version,
      token: token === undefined || token === "" ? null : new Secret(token),
      self: [PROGRAM],
    });
  } catch (error) {
    log.error("agent.start_failed", { message: error instanceof Error ? error.message : String(error) });
    log.flush();
    return hasErrorCode(error, "CONFIG_INVALID") ? EXIT.usage : EXIT.failed;
  }
  io.out(readyLine(settings, ports.version));
  if (!ports.stop.aborted)
    await new Promise<void>((resolve) => ports.stop.addEventListener("abort", () => resolve(), { once: true }));
  await agent.stop({ engines: own.stopEngines ? "stop" : "leave" }, ports.hurry);
  log.flush();
  return EXIT.done;
}

const readyLine = (settings: AgentSettings, version: string): string =>
  `yardmaster agent ready name=${settings.name} control=${settings.controls.join(",")} address=${settings.address} version=${version}\n`;
