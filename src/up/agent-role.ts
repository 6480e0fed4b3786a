import { hostname } from "node:os";
import { Agent, agentFolder } from "../agent/agent.ts";
import { readArgs, readRoleFlags, ROLE_OPTIONS, splitList, usageError, type RoleFlags } from "../cli/args.ts";
import { EXIT, type Command } from "../cli/cli-io.ts";
import { formatProblems } from "../config/config-problem.ts";
import { isSafeControlUrl, parseControlUrl } from "../contract/agent-schema.ts";
import { resolveAgent, type AgentSettings } from "../contract/resolve-agent.ts";
import { untilAborted } from "../kernel/deadline.ts";
import { hasErrorCode, messageOf } from "../kernel/errors.ts";
import { systemRandom } from "../kernel/random.ts";
import { Secret } from "../kernel/secret.ts";
import { PROGRAM, type ProcessPorts } from "./process-ports.ts";
import { loadWithoutGateway, openLog, tellWarnings } from "./role-start.ts";

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

async function runAgent(flags: RoleFlags, own: AgentFlags, ports: ProcessPorts): Promise<number> {
  const { io } = ports;
  const loaded = await loadWithoutGateway(flags, io);
  if (loaded.kind === "invalid") {
    io.err(`${formatProblems(loaded.problems)}\n`);
    return EXIT.usage;
  }
  const log = openLog(flags, io);
  tellWarnings(log, loaded.warnings);
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
    log.error("agent.start_failed", { message: messageOf(error) });
    log.flush();
    return hasErrorCode(error, "CONFIG_INVALID") ? EXIT.usage : EXIT.failed;
  }
  io.out(readyLine(settings, ports.version));
  await untilAborted(ports.stop);
  await agent.stop({ engines: own.stopEngines ? "stop" : "leave" }, ports.hurry);
  log.flush();
  return EXIT.done;
}

const readyLine = (settings: AgentSettings, version: string): string =>
  `yardmaster agent ready name=${settings.name} control=${settings.controls.join(",")} address=${settings.address} version=${version}\n`;
