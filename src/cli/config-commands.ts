import { formatProblems } from "../config/config-problem.ts";
import { loadConfigFile } from "../config/load-config.ts";
import type { LoadedConfig } from "../config/load-config.ts";
import { configJsonSchema, effectiveFile, printConfig } from "../config/print-config.ts";
import type { ConfigFile } from "../contract/config-schema.ts";
import { parseListen } from "../contract/listen-address.ts";
import { readArgs, usageError } from "./args.ts";
import { EXIT } from "./cli-io.ts";
import type { CliIo, Command } from "./cli-io.ts";

const FILE_OPTIONS = {
  config: { type: "string", default: "yardmaster.yaml" },
  listen: { type: "string" },
  "data-dir": { type: "string" },
  json: { type: "boolean", default: false },
} as const;

const FILE_OPTIONS_HELP = `  --config FILE       another way to name the file (default ./yardmaster.yaml)
  --listen HOST:PORT  as it would be given to a role
  --data-dir DIR      as it would be given to a role
  --output json, -o json
                      JSON on standard output, and nothing else there
  --help              this text
`;

async function load(
  args: readonly string[],
  io: CliIo,
): Promise<{
  readonly path: string;
  readonly json: boolean;
  readonly loaded: LoadedConfig;
  /** The file is no gateway's, as far as it tells. */
  readonly withoutGateway: boolean;
}> {
  const { values, positionals, given } = readArgs(args, FILE_OPTIONS, { names: ["FILE"], optional: true });
  if (positionals[0] !== undefined && given.has("config")) throw usageError("the file is named twice");
  if (values.listen !== undefined && parseListen(values.listen) === undefined)
    throw usageError("--listen: use HOST:PORT");
  const path = positionals[0] ?? values.config;
  const { listen, "data-dir": dataDir, json } = values;
  const loaded = await loadConfigFile(path, io.env, { listen, dataDir });
  if (loaded.kind === "valid") return { path, json, loaded, withoutGateway: false };
  const other = await loadConfigFile(path, io.env, { controlListen: listen, dataDir, gateway: false });
  const withoutGateway = other.kind === "valid" && isNoGateways(other.file);
  return { path, json, loaded: withoutGateway ? other : loaded, withoutGateway };
}

/** It has a part for a control plane or an agent, and none for a gateway. */
const isNoGateways = ({ control, agent, gateway }: ConfigFile): boolean =>
  gateway === undefined && (control !== undefined || agent !== undefined);

function reportInvalid(loaded: LoadedConfig & { readonly kind: "invalid" }, json: boolean, io: CliIo): number {
  if (json) io.out(`${JSON.stringify({ valid: false, problems: loaded.problems, warnings: [] })}\n`);
  io.err(`${formatProblems(loaded.problems)}\n`);
  return EXIT.usage;
}

function reportWarnings(warnings: readonly string[], io: CliIo): void {
  for (const warning of warnings) io.err(`warning: ${warning}\n`);
}

const check: Command = {
  words: ["config", "check"],
  summary: "check a configuration file",
  help: `usage: yardmaster config check [FILE] [options]

Reads the file as a role would, and reports every mistake with its place. Starts nothing. A file with \`control\` or \`agent\`, and neither
\`gateway\` nor \`upstreams\`, is checked for those roles: a gateway would not start with it.

${FILE_OPTIONS_HELP}
exit codes: 0 valid (warnings are on standard error), 2 not valid
`,
  async run(args, io) {
    const { path, json, loaded, withoutGateway } = await load(args, io);
    if (loaded.kind === "invalid") return reportInvalid(loaded, json, io);
    reportWarnings(loaded.warnings, io);
    const { upstreams, auth } = loaded.config;
    const served = withoutGateway
      ? "valid for a control plane and an agent; for a gateway `upstreams` is missing"
      : `valid; upstreams: ${upstreams.length}`;
    io.out(
      json
        ? `${JSON.stringify({ valid: true, gateway: !withoutGateway, problems: [], warnings: loaded.warnings })}\n`
        : `${path}: ${served}, keys: ${auth.keys.length}\n`,
    );
    return EXIT.done;
  },
};

const print: Command = {
  words: ["config", "print"],
  summary: "print the configuration as it is in force",
  help: `usage: yardmaster config print [FILE] [options]

Prints the whole configuration with every default written out. Passwords are masked.

${FILE_OPTIONS_HELP}`,
  async run(args, io) {
    const { json, loaded } = await load(args, io);
    if (loaded.kind === "invalid") return reportInvalid(loaded, json, io);
    reportWarnings(loaded.warnings, io);
    io.out(
      json
        ? `${JSON.stringify(effectiveFile(loaded.file, loaded.config), null, 2)}\n`
        : printConfig(loaded.file, loaded.config),
    );
    return EXIT.done;
  },
};

const schema: Command = {
  words: ["config", "schema"],
  summary: "print the JSON Schema of the configuration file",
  help: `usage: yardmaster config schema

Prints a JSON Schema. An editor that knows it completes keys and shows their meaning:

    yardmaster config schema > yardmaster.schema.json
    # first line of yardmaster.yaml:
    # yaml-language-server: $schema=./yardmaster.schema.json
`,
  async run(args, io) {
    readArgs(args, {}, { names: [] });
    io.out(`${JSON.stringify(configJsonSchema(), null, 2)}\n`);
    return EXIT.done;
  },
};

export const configCommands: readonly Command[] = [check, print, schema];
