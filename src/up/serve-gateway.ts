import type { RoleFlags } from "../cli/args.ts";
import { EXIT } from "../cli/cli-io.ts";
import { formatProblems, formatProblemsInLine } from "../config/config-problem.ts";
import { loadConfigFile, type LoadedConfig } from "../config/load-config.ts";
import { settleReload } from "../config/settle-reload.ts";
import { watchConfig } from "../config/watch-config.ts";
import type { GatewayConfig } from "../contract/gateway-config.ts";
import { Gateway } from "../gateway/gateway.ts";
import { untilAborted } from "../kernel/deadline.ts";
import type { BatchedLogger } from "../kernel/log.ts";
import { systemRandom } from "../kernel/random.ts";
import { holdFolder } from "./hold-folder.ts";
import type { ProcessPorts } from "./process-ports.ts";
import { openLog, tellWarnings, whyNotStarted } from "./role-start.ts";

type Valid = Extract<LoadedConfig, { kind: "valid" }>;

/** What runs beside the gateway in the same process, and what it adds to it. */
export interface Beside {
  /** Adds to what the file says. */
  readonly extend: (config: GatewayConfig) => GatewayConfig;
  readonly sessionKeys: GatewayConfig["auth"]["keys"];
  /** Keys that are made while the gateway runs: at start, and after each change. */
  readonly onStoredKeys?: (keys: GatewayConfig["auth"]["keys"]) => void;
  /** Called once when the gateway can serve. */
  readonly onReady: (gateway: Gateway, config: GatewayConfig) => void | Promise<void>;
  /** A new valid file. */
  readonly onConfig: (loaded: Valid) => void;
  /** SIGHUP. */
  readonly onReload: () => void;
  /** Ends it; the gateway has ended, or has not come to start. */
  readonly stop: () => Promise<void>;
}

export interface ServeOptions {
  readonly flags: RoleFlags;
  /** Whether something serves requests where the file names no upstream. */
  readonly standIn: boolean;
  /** Starts what runs beside the gateway, before it. */
  readonly beside: (loaded: Valid) => Promise<Beside>;
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
  const hold = holdDataDir(loaded.config.dataDir, log);
  if (hold === null) return EXIT.failed;
  let beside: Beside | undefined;
  let current: GatewayConfig;
  let gateway: Gateway;
  try {
    beside = await options.beside(loaded);
    current = beside.extend(loaded.config);
    const { sessionKeys, onStoredKeys } = beside;
    const common = { clock: io.clock, random: systemRandom, log, version: ports.version };
    gateway = await Gateway.start({ ...common, config: current, sessionKeys, onStoredKeys });
  } catch (error) {
    log.error("gateway.start_failed", { message: whyNotStarted(error) });
    await beside?.stop();
    hold.release();
    log.flush();
    return EXIT.failed;
  }
  const { extend, onConfig, onReload, onReady, stop } = beside;
  const watching = watchConfig({
    path: flags.configPath,
    clock: io.clock,
    load,
    digest: loaded.digest,
    signal: ports.stop,
    onValid: (next) => {
      tellWarnings(log, next.warnings);
      const settled = settleReload(current, extend(next.config));
      if (settled.kind === "refused") {
        gateway.refuseConfig(settled.message);
        return;
      }
      for (const key of settled.waiting) log.warn("config.needs_restart", { key });
      current = settled.config;
      gateway.applyConfig(settled.config);
      onConfig(next);
    },
    onInvalid: (problems) => gateway.refuseConfig(formatProblemsInLine(problems)),
  });
  ports.onReload(() => {
    watching.reload();
    onReload();
  });
  await onReady(gateway, current);
  await untilAborted(ports.stop);
  await gateway.stop(ports.hurry);
  await stop();
  hold.release();
  log.flush();
  return EXIT.done;
}

/** Null: another gateway has the folder, which the log says. */
function holdDataDir(dataDir: string, log: BatchedLogger): { readonly release: () => void } | null {
  const hold = holdFolder(dataDir, "gateway");
  if (hold.kind === "held") return hold;
  if (hold.kind === "taken") {
    log.error("gateway.start_failed", {
      message: `another gateway uses the data folder ${dataDir}: stop it, or give this one a \`data_dir\` of its own`,
    });
    log.flush();
    return null;
  }
  log.warn("data_dir.not_held", { dataDir, why: hold.why });
  return { release: () => {} };
}
