import type { ParseArgsOptionsConfig } from "node:util";
import type { z } from "zod";
import { readArgs, usageError } from "./args.ts";
import { type CliIo, type Command, EXIT } from "./cli-io.ts";
import {
  CONTROL_OPTIONS_HELP,
  CTL_OPTIONS,
  type CtlAnswer,
  type CtlClient,
  openCtlClient,
  reportFailure,
  reportShape,
} from "./ctl-client.ts";
import { patientClient } from "./ctl-patient.ts";
import type { TableShape } from "./table.ts";

const CONTROL_OPTIONS = {
  ...CTL_OPTIONS,
  output: { type: "string", short: "o", default: "table" },
} as const satisfies ParseArgsOptionsConfig;

const OUTPUTS: readonly string[] = ["table", "wide", "json"];

export interface ControlCall<Values> {
  readonly client: CtlClient;
  readonly io: CliIo;
  readonly json: boolean;
  readonly shape: TableShape;
  readonly values: Values;
  readonly positionals: readonly string[];
}

/** A command that asks a control plane; `act` returns the exit code. */
export function controlCommand<const Options extends ParseArgsOptionsConfig>(spec: {
  readonly words: readonly string[];
  readonly summary: string;
  /** Behind the words, in the usage line. */
  readonly usage?: string;
  readonly about: string;
  readonly optionsHelp?: string;
  readonly options: Options;
  readonly names?: readonly string[];
  /** Whether the names may be left out. */
  readonly optional?: boolean;
  readonly act: (call: ControlCall<ReturnType<typeof readControlArgs<Options>>["values"]>) => Promise<number>;
}): Command {
  const { words, summary, usage = "", about, optionsHelp = "", options, names = [], optional = false, act } = spec;
  return {
    words,
    summary,
    help: `usage: yardmaster ${[...words, ...(usage === "" ? names : [usage])].join(" ")} [options]\n\n${about}\n\n${optionsHelp}${CONTROL_OPTIONS_HELP}`,
    async run(args, io) {
      const { values, positionals, json, wide, flags } = readControlArgs(args, options, names, optional);
      const shape = { width: wide ? null : io.columns, wide };
      return act({ client: await openCtlClient(flags, io, "control"), io, json, shape, values, positionals });
    },
  };
}

function readControlArgs<const Options extends ParseArgsOptionsConfig>(
  args: readonly string[],
  options: Options,
  names: readonly string[],
  optional: boolean,
) {
  const { values, positionals } = readArgs(args, { ...options, ...CONTROL_OPTIONS }, { names, optional });
  const flags = values as {
    readonly url?: string;
    readonly "key-file"?: string;
    readonly "data-dir": string;
    readonly json: boolean;
    readonly output: string;
  };
  if (!OUTPUTS.includes(flags.output)) throw usageError(`-o: use ${OUTPUTS.join(", ")}`);
  const json = flags.json || flags.output === "json";
  return { values, positionals, json, wide: flags.output === "wide", flags };
}

export const WATCH_OPTIONS = {
  watch: { type: "boolean", default: false },
} as const satisfies ParseArgsOptionsConfig;
export const WATCH_HELP =
  "  --watch                 show it again whenever it has changed, until Ctrl-C; a control plane that is away\n                          is waited for, up to 60 s\n";
export const WATCH_MS = 1_000;

/**
 * Runs `once`, and with `--watch` again and again as long as it succeeds; what it writes is shown only where it differs. A control
 * plane that is away for a while is waited for.
 */
export async function watch(
  call: ControlCall<{ readonly watch: boolean }>,
  once: (call: ControlCall<unknown>) => Promise<number>,
): Promise<number> {
  if (!call.values.watch) return once(call);
  const { io } = call;
  const client = patientClient(call.client, io, false);
  let last = "";
  for (;;) {
    let text = "";
    const code = await once({ ...call, client, io: { ...io, out: (more) => void (text += more) } });
    if (code !== EXIT.done) return code;
    if (text !== last) io.out(last === "" || call.json ? text : `\n${text}`);
    last = text;
    const isOver = await io.clock.sleep(WATCH_MS, io.signal).then(
      () => false,
      () => true,
    );
    if (isOver) return EXIT.done;
  }
}

/** Asks, checks the answer's form and shows it. Returns the exit code. */
export async function show<T>(
  call: Pick<ControlCall<unknown>, "client" | "io" | "json" | "shape">,
  path: string,
  schema: z.ZodType<T>,
  render: (body: T, shape: TableShape) => string,
): Promise<number> {
  const answer = await call.client.request("GET", path);
  return showAnswer(call, answer, schema, render);
}

/** An answer of another form than the command knows came from something else, and nothing was done as far as anybody knows. */
export function showAnswer<T>(
  { io, json, shape }: Pick<ControlCall<unknown>, "io" | "json" | "shape">,
  answer: CtlAnswer,
  schema: z.ZodType<T>,
  render: (body: T, shape: TableShape) => string,
): number {
  if (answer.kind !== "done") return reportFailure(answer, io, "control plane");
  const parsed = schema.safeParse(answer.body);
  if (!parsed.success) return reportShape(io, "control plane");
  io.out(json ? `${JSON.stringify(parsed.data)}\n` : render(parsed.data, shape));
  return EXIT.done;
}

/** A name of a node or model in a path: its slashes stand for themselves. */
export function inPath(name: string): string {
  const segments = name.split("/");
  // Encoded or not, a URL without them is what would be asked for: that of another name.
  if (segments.some((segment) => segment === "." || segment === ".."))
    throw usageError("a name has no segment that is `.` or `..`");
  return segments.map(encodeURIComponent).join("/");
}
