import { parseRoleArgs, ROLE_OPTIONS_HELP, type RoleFlags } from "../cli/args.ts";
import { EXIT, type Command } from "../cli/cli-io.ts";
import { formatProblems, formatProblemsInLine } from "../config/config-problem.ts";
import type { LoadedConfig } from "../config/load-config.ts";
import { letsEverybodyIn } from "../config/settle-reload.ts";
import { watchConfig } from "../config/watch-config.ts";
import { type ControlSettings, resolveControl } from "../contract/resolve-control.ts";
import { ControlPlane } from "../control/control-plane.ts";
import { untilAborted } from "../kernel/deadline.ts";
import type { Logger } from "../kernel/log.ts";
import type { ProcessPorts } from "./process-ports.ts";
import { loadWithoutGateway, openLog, tellWarnings, whyNotStarted } from "./role-start.ts";
import { makeSessionKey, removeOperatorKey, type SessionKey, writeOperatorKey } from "./session-keys.ts";

const HELP = `usage: yardmaster control [options]

The control plane: catalog, nodes, leader, and their HTTP API. Without \`database_url\` its state is in the data folder; control
planes that share a PostgreSQL take over from each other. SIGHUP re-reads the files.

${ROLE_OPTIONS_HELP}`;

export const controlRole = (ports: () => ProcessPorts): Command => ({
  words: ["control"],
  summary: "the control plane: catalog, nodes, placement, leader",
  help: HELP,
  run: (args) => runControl(parseRoleArgs(args), ports()),
});

type Valid = Extract<LoadedConfig, { kind: "valid" }>;

const load = (flags: RoleFlags, { io }: ProcessPorts): Promise<LoadedConfig> =>
  loadWithoutGateway(flags, io, { controlListen: flags.listen });

async function runControl(flags: RoleFlags, ports: ProcessPorts): Promise<number> {
  const { io } = ports;
  const loaded = await load(flags, ports);
  if (loaded.kind === "invalid") {
    io.err(`${formatProblems(loaded.problems)}\n`);
    return EXIT.usage;
  }
  const log = openLog(flags, io);
  tellWarnings(log, loaded.warnings);
  const settings = resolveControl(loaded.file.control, flags.listen);
  const { auth, dataDir, databaseUrl } = loaded.config;
  // Without an administrator's key in the file nobody could use the API: whoever may read the data folder can.
  const operator = auth.keys.some(({ role }) => role === "admin") ? null : makeSessionKey("local-operator", "admin");
  let plane: ControlPlane;
  try {
    plane = await ControlPlane.start({
      settings,
      auth,
      sessionKeys: operator === null ? [] : [operator.key],
      dataDir,
      databaseUrl,
      signingSecrets: loaded.config.signingSecrets,
      clock: io.clock,
      log,
      version: ports.version,
      otel: loaded.config.otel,
      metricsPublic: loaded.file.metrics.public,
    });
  } catch (error) {
    log.error("control.start_failed", { message: whyNotStarted(error) });
    log.flush();
    return EXIT.failed;
  }
  await serve(plane, { flags, settings, loaded, operator, log }, ports);
  log.flush();
  return EXIT.done;
}

interface Serving {
  readonly flags: RoleFlags;
  readonly settings: ControlSettings;
  readonly loaded: Valid;
  readonly operator: SessionKey | null;
  readonly log: Logger;
}

async function serve(
  plane: ControlPlane,
  { flags, settings, loaded, operator, log }: Serving,
  ports: ProcessPorts,
): Promise<void> {
  const { dataDir } = loaded.config;
  if (operator !== null) await writeOperatorKey(dataDir, operator.secret);
  const watching = watchConfig<Valid>({
    path: flags.configPath,
    clock: ports.io.clock,
    load: () => load(flags, ports),
    digest: loaded.digest,
    signal: ports.stop,
    onValid: ({ config: { auth }, warnings }) => {
      tellWarnings(log, warnings);
      // Access is judged by the address that is open, not by the one that the file now names.
      if (letsEverybodyIn(settings.listen, auth))
        return log.error("config.refused", { message: "auth.mode: `none` is refused while the address is open" });
      plane.applyAuth(auth);
      return log.info("config.applied", { keys: auth.keys.length });
    },
    onInvalid: (problems) => log.error("config.refused", { message: formatProblemsInLine(problems) }),
  });
  ports.onReload(() => {
    watching.reload();
    plane.reload();
  });
  ports.io.out(`yardmaster control ready listen=${plane.address} store=${plane.store} version=${ports.version}\n`);
  await untilAborted(ports.stop);
  await plane.stop();
  if (operator !== null) await removeOperatorKey(dataDir);
}
