import { existsSync } from "node:fs";
import type { RoleFlags } from "../cli/args.ts";
import type { CliIo } from "../cli/cli-io.ts";
import { loadConfigFile, parseConfigText, type LoadedConfig } from "../config/load-config.ts";
import type { ConfigOverrides } from "../contract/resolve-config.ts";
import { BatchedLogger, type Logger } from "../kernel/log.ts";

/** The configuration of a role that serves no upstreams: one that is told all it needs by flags has no file. */
export function loadWithoutGateway(
  flags: RoleFlags,
  { env }: CliIo,
  over: Omit<ConfigOverrides, "dataDir" | "gateway"> = {},
): Promise<LoadedConfig> {
  const overrides = { ...over, dataDir: flags.dataDir, gateway: false };
  return flags.configGiven || existsSync(flags.configPath)
    ? loadConfigFile(flags.configPath, env, overrides)
    : Promise.resolve(parseConfigText("upstreams: []", flags.configPath, env, overrides));
}

/** The role's log, on the error output. */
export const openLog = ({ logLevel, logFormat }: RoleFlags, io: CliIo): BatchedLogger =>
  new BatchedLogger({ clock: io.clock, sink: { write: (text) => io.err(text) }, level: logLevel, format: logFormat });

export function tellWarnings(log: Logger, warnings: readonly string[]): void {
  for (const warning of warnings) log.warn("config.warning", { message: warning });
}
