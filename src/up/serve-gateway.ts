import type { RoleFlags } from "../cli/args.ts";
import { EXIT } from "../cli/cli-io.ts";
import { formatProblems, formatProblemsInLine } from "../config/config-problem.ts";
import { loadConfigFile, type LoadedConfig } from "../config/load-config.ts";
import { settleReload } from "../config/settle-reload.ts";
import { watchConfig } from "../config/watch-config.ts";
import type { GatewayConfig } from "../contract/gateway-config.ts";
import { Gateway } from "../gateway/gateway.ts";
import { untilAborted } from "../kernel/deadline.ts";
import { messageOf } from "../kernel/errors.ts";
import { systemRandom } from "../kernel/random.ts";
import type { ProcessPorts } from "./process-ports.ts";
import { openLog, tellWarnings } from "./role-start.ts";

export interface ServeOptions {
  readonly flags: RoleFlags;
  /** Adds to what the file says, such as the demonstration engine of `up`. */
  readonly extend: (config: GatewayConfig) => GatewayConfig;
  /** Whether that serves requests where the file names no upstream. */
  readonly standIn: boolean;
  readonly sessionKeys: GatewayConfig["auth"]["keys"];
  /** Called once when the gateway can serve. */
  readonly onReady: (gateway: Gateway, config: GatewayConfig) => void;
  /** Ends what was started beside the gateway. */
  readonly onStopped: () => Promise<void>;
}

/** Runs a gateway from its configuration file until the process is told to stop. Returns the exit code. */
export async function serveGateway(options: ServeOptions, ports: ProcessPorts): Promise<number> {
  const { flags } = options;
  const { io } = ports;
  const overrides = { listen: flags.listen, dataDir: flags.dataDir, standIn: options.standIn };
  const load = (): Promise<LoadedConfig> => loadConfigFile(flags.configPath, io.env, overrides);
  const loaded = await load();
  if (loaded.kind === "invalid") {
    io.err(`${formatProblems(loaded.problems)}\n`);
    return EXIT.usage;
  }
  const log = openLog(flags, io);
  tellWarnings(log, loaded.warnings);
  let current = options.extend(loaded.config);
  let gateway: Gateway;
  try {
    gateway = await Gateway.start({
      config: current,
      clock: io.clock,
      random: systemRandom,
      log,
      version: ports.version,
      sessionKeys: options.sessionKeys,
    });
  } catch (error) {
    log.error("gateway.start_failed", { message: messageOf(error) });
    log.flush();
    return EXIT.failed;
  }
  const watching = watchConfig({
    path: flags.configPath,
    clock: io.clock,
    load,
    digest: loaded.digest,
    signal: ports.stop,
    onValid: (next) => {
      tellWarnings(log, next.warnings);
      const settled = settleReload(current, options.extend(next.config));
      if (settled.kind === "refused") {
        gateway.refuseConfig(settled.message);
        return;
      }
      for (const key of settled.waiting) log.warn("config.needs_restart", { key });
      current = settled.config;
      gateway.applyConfig(settled.config);
    },
    onInvalid: (problems) => gateway.refuseConfig(formatProblemsInLine(problems)),
  });
  ports.onReload(() => watching.reload());
  options.onReady(gateway, current);
  await untilAborted(ports.stop);
  await gateway.stop(ports.hurry);
  await options.onStopped();
  log.flush();
  return EXIT.done;
}
