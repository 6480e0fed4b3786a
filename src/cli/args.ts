import { parseArgs } from "node:util";
import type { ParseArgsOptionsConfig } from "node:util";
import { nearest } from "../config/nearest.ts";
import { parseListen } from "../contract/listen-address.ts";
import { YardmasterError } from "../kernel/errors.ts";
import { LOG_LEVELS } from "../kernel/log.ts";
import type { LogLevel } from "../kernel/log.ts";

export const usageError = (message: string): YardmasterError => new YardmasterError("USAGE", message);

/** An option that a command does not have; `options` are those that it has. */
export class UnknownOption extends YardmasterError {
  readonly options: readonly string[];

  constructor(message: string, options: readonly string[]) {
    super("USAGE", message);
    this.options = options;
  }
}

/** The options that every role takes. */
export interface RoleFlags {
  readonly configPath: string;
  /** Whether `--config` was given: a missing file is then always a mistake. */
  readonly configGiven: boolean;
  /** Over the file's `listen`. */
  readonly listen: string | undefined;
  /** Over the file's `data_dir`. */
  readonly dataDir: string | undefined;
  readonly logLevel: LogLevel;
  readonly logFormat: "pretty" | "json";
}

export const ROLE_OPTIONS = {
  config: { type: "string", default: "yardmaster.yaml" },
  listen: { type: "string" },
  "data-dir": { type: "string" },
  "log-level": { type: "string", default: "info" },
  "log-format": { type: "string", default: "pretty" },
} as const satisfies ParseArgsOptionsConfig;

export const ROLE_OPTIONS_HELP = `  --config FILE           configuration (default ./yardmaster.yaml)
  --listen HOST:PORT      address, over the file's
  --data-dir DIR          folder for local state, over the file's (default ./data)
  --log-level LEVEL       debug, info, warn or error (default info)
  --log-format FORMAT     pretty or json (default pretty)
  --help                  this text
`;

/** A command that knows `--json` and no other formats takes it in the words of those that do, too. */
const OUTPUT = { output: { type: "string", short: "o" } } as const satisfies ParseArgsOptionsConfig;

/**
 * `parseArgs` with errors that a person can act on. Throws USAGE. Every option but the lists is to be given once: a
 * second one that quietly won would be a trap.
 */
export function readArgs<const Options extends ParseArgsOptionsConfig>(
  args: readonly string[],
  own: Options,
  positionals: { readonly names: readonly string[]; readonly optional?: boolean },
) {
  const options = "json" in own && !("output" in own) ? { ...own, ...OUTPUT } : own;
  refuseUnknown(args, options);
  let parsed: ReturnType<
    typeof parseArgs<{ args: string[]; options: Options; strict: true; allowPositionals: true; tokens: true }>
  >;
  try {
    parsed = parseArgs({ args: [...args], options, strict: true, allowPositionals: true, tokens: true });
  } catch (err) {
    throw new YardmasterError("USAGE", err instanceof Error ? (err.message.split("\n", 1)[0] ?? "") : String(err), {
      cause: err,
    });
  }
  const seen = new Set<string>();
  for (const token of parsed.tokens) {
    if (token.kind !== "option") continue;
    if (seen.has(token.name) && options[token.name]?.multiple !== true)
      throw usageError(`--${token.name} is given twice`);
    seen.add(token.name);
  }
  const given = parsed.positionals;
  const missing = positionals.names[given.length];
  if (missing !== undefined && positionals.optional !== true) throw usageError(`${missing} is missing`);
  if (given.length > positionals.names.length)
    throw usageError(`unexpected argument: ${given[positionals.names.length]}`);
  if (options !== own) readOutput(parsed.values);
  return { values: parsed.values, positionals: given, given: seen as ReadonlySet<string> };
}

function readOutput(values: Record<string, unknown>): void {
  const { output } = values;
  if (output !== undefined && output !== "table" && output !== "json") throw usageError("-o: use table or json");
  if (output === "json") values["json"] = true;
  delete values["output"];
}

function refuseUnknown(args: readonly string[], options: ParseArgsOptionsConfig): void {
  for (const arg of args) {
    if (arg === "--") return;
    if (!arg.startsWith("--")) continue;
    const name = arg.slice(2).split("=", 1)[0] ?? "";
    if (Object.hasOwn(options, name)) continue;
    const near = nearest(name, Object.keys(options));
    const hint = near === undefined ? "" : `; did you mean --${near}?`;
    throw new UnknownOption(`unknown option --${name}${hint}`, Object.keys(options));
  }
}

interface RoleFlagValues {
  readonly config: string;
  readonly listen?: string | undefined;
  readonly "data-dir"?: string | undefined;
  readonly "log-level": string;
  readonly "log-format": string;
}

export function readRoleFlags(values: RoleFlagValues, given: ReadonlySet<string>): RoleFlags {
  const logLevel = LOG_LEVELS.find((level) => level === values["log-level"]);
  if (logLevel === undefined) throw usageError(`--log-level: use one of ${LOG_LEVELS.join(", ")}`);
  const logFormat = values["log-format"];
  if (logFormat !== "pretty" && logFormat !== "json") throw usageError("--log-format: use pretty or json");
  if (values.listen !== undefined && parseListen(values.listen) === undefined)
    throw usageError("--listen: use HOST:PORT, such as 127.0.0.1:8200 or [::1]:8200");
  if (values.config === "") throw usageError("--config: names no file");
  if (values["data-dir"] === "") throw usageError("--data-dir: names no folder");
  return {
    configPath: values.config,
    configGiven: given.has("config"),
    listen: values.listen,
    dataDir: values["data-dir"],
    logLevel,
    logFormat,
  };
}

/** The flags of a role that has none of its own. */
export function parseRoleArgs(args: readonly string[]): RoleFlags {
  const { values, given } = readArgs(args, ROLE_OPTIONS, { names: [] });
  return readRoleFlags(values, given);
}

/** "a,b" to its parts; empty parts are a mistake. */
export function splitList(option: string, text: string): string[] {
  const parts = text.split(",").map((part) => part.trim());
  if (parts.includes("")) throw usageError(`--${option}: has an empty entry`);
  return parts;
}
