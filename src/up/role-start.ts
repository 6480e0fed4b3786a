import { existsSync } from "node:fs";
import type { RoleFlags } from "../cli/args.ts";
import type { CliIo } from "../cli/cli-io.ts";
import { loadConfigFile, parseConfigText, type LoadedConfig } from "../config/load-config.ts";
import type { ConfigOverrides } from "../contract/resolve-config.ts";
import { hasSystemCode, messageOf } from "../kernel/errors.ts";
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

/** Why a role did not start, with the way out where there is a usual one. */
export function whyNotStarted(error: unknown): string {
  const way = hasSystemCode(error, "EADDRINUSE")
    ? ": another program has the address; stop it, or choose another one with --listen (the control plane's in `up` with --control-listen)"
    : "";
  return `${messageOf(error)}${way}`;
}
