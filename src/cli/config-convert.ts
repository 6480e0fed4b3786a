import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { readTextFile } from "../config/checked-yaml.ts";
import { formatProblems } from "../config/config-problem.ts";
import { convertText, FOREIGN_FORMATS, type ConvertedFile, type ForeignFormat } from "../config/convert-file.ts";
import { CONFIG_BYTES_MAX } from "../config/load-config.ts";
import { hasSystemCode } from "../kernel/errors.ts";
import { escapeControls } from "../kernel/log.ts";
import { readArgs, usageError } from "./args.ts";
import { EXIT } from "./cli-io.ts";
import type { CliIo, Command } from "./cli-io.ts";

const OPTIONS = {
  from: { type: "string" },
  gpu: { type: "string" },
  write: { type: "string" },
  catalog: { type: "boolean", default: false },
  output: { type: "string", short: "o", default: "yaml" },
} as const;

const HELP = `usage: yardmaster config convert FILE --from FORMAT [options]

Makes a configuration of another program's. What has no counterpart, or is not quite the same here, is told on standard error with
its key; nothing is left out in silence. Keys in plain text are not copied: the environment variable that is to hold each is named.
The result was checked as \`yardmaster config check\` does.

  --from FORMAT           ${FOREIGN_FORMATS.join(" or ")} (needed)
  --write DIR             write yardmaster.yaml and catalog.yaml into this folder; what is there already is never written over
  --catalog               print the catalog instead of the configuration (llama-swap: the models that are started here)
  --gpu CLASS:GB          llama-swap: the class of this machine's cards, as \`ctl gpus\` shows it, and the memory of each
  --output FORMAT, -o FORMAT
                          yaml (default), or json: both texts, all warnings and the variables in one object
  --help                  this text

exit codes: 0 converted (warnings are on standard error), 1 a file is there already, 2 can't be converted
`;

export const configConvert: Command = {
  words: ["config", "convert"],
  summary: "make a configuration of LiteLLM's or llama-swap's",
  help: HELP,
  async run(args, io) {
    const { values, positionals } = readArgs(args, OPTIONS, { names: ["FILE"] });
    const from = FOREIGN_FORMATS.find((format) => format === values.from);
    if (from === undefined) throw usageError(`--from: use ${FOREIGN_FORMATS.join(" or ")}`);
    if (values.output !== "yaml" && values.output !== "json") throw usageError("-o: use yaml or json");
    const [path = ""] = positionals;
    const converted = await convertFile(path, from, values.gpu, io);
    if (converted.kind === "refused") {
      io.err(`yardmaster: ${escapeControls(path)}: ${converted.why}\n`);
      return EXIT.usage;
    }
    if (values.output === "json") io.out(`${JSON.stringify(jsonOf(converted))}\n`);
    else tellWarnings(converted, io);
    if (values.write !== undefined) return writeFiles(values.write, converted, io);
    if (values.output === "yaml") io.out(values.catalog ? (converted.catalog ?? "models: []\n") : converted.config);
    return EXIT.done;
  },
};

type Converted = Extract<ConvertedFile, { kind: "converted" }>;

async function convertFile(
  path: string,
  from: ForeignFormat,
  gpu: string | undefined,
  io: CliIo,
): Promise<ConvertedFile> {
  const read = await readTextFile(path, CONFIG_BYTES_MAX);
  if (read.kind === "invalid") return { kind: "refused", why: formatProblems(read.problems) };
  return convertText(read.text, { from, env: io.env, gpu: gpu === undefined ? null : readGpu(gpu) });
}

function readGpu(text: string): { readonly class: string; readonly memoryGb: number } {
  const match = /^([A-Za-z0-9][A-Za-z0-9._-]{0,63}):(\d{1,6}(?:\.\d{1,3})?)$/.exec(text);
  const memoryGb = Number(match?.[2]);
  if (match === null || !(memoryGb > 0)) throw usageError("--gpu: use CLASS:GB, such as rtx4090:24");
  return { class: match[1] ?? "", memoryGb };
}

const jsonOf = ({ config, catalog, warnings, variables }: Converted): Omit<Converted, "kind"> => ({
  config,
  catalog,
  warnings,
  variables,
});

function tellWarnings({ warnings, variables }: Converted, io: CliIo): void {
  for (const { path, kind, message } of warnings)
    io.err(`${kind}: ${escapeControls(path === "" ? message : `${path}: ${message}`)}\n`);
  if (variables.length > 0) io.err(`environment: ${variables.join(", ")}\n`);
}

async function writeFiles(folder: string, { config, catalog }: Converted, io: CliIo): Promise<number> {
  const files = [
    ["yardmaster.yaml", config] as const,
    ...(catalog === null ? [] : [["catalog.yaml", catalog] as const]),
  ];
  for (const [name, text] of files) {
    const path = join(folder, name);
    try {
      await writeFile(path, text, { flag: "wx", mode: 0o600 });
    } catch (error) {
      if (!(error instanceof Error && "code" in error)) throw error;
      const why = hasSystemCode(error, "EEXIST") ? "is there already" : `can't be written (${String(error.code)})`;
      io.err(`yardmaster: ${escapeControls(path)}: ${why}\n`);
      return EXIT.failed;
    }
    io.err(`written: ${escapeControls(path)}\n`);
  }
  return EXIT.done;
}
