import { nearest } from "../config/nearest.ts";
import { hasErrorCode } from "../kernel/errors.ts";
import { escapeControls } from "../kernel/log.ts";
import { EXIT } from "./cli-io.ts";
import type { CliIo, Command } from "./cli-io.ts";

/** Finds the command that the arguments name and runs it. Returns the exit code. */
export async function dispatch(
  argv: readonly string[],
  commands: readonly Command[],
  version: string,
  io: CliIo,
): Promise<number> {
  const words = leadingWords(argv);
  if (argv[0] === "--version" || argv[0] === "-V") {
    io.out(`${version}\n`);
    return EXIT.done;
  }
  const command = commands
    .filter((candidate) => candidate.words.every((word, index) => words[index] === word))
    .toSorted((a, b) => b.words.length - a.words.length)[0];
  if (command === undefined) return explainUnknown(argv, words, commands, io);
  const args = argv.slice(command.words.length);
  if (asksForHelp(args)) {
    io.out(command.help);
    return EXIT.done;
  }
  try {
    return await command.run(args, io);
  } catch (err) {
    if (!hasErrorCode(err, "USAGE")) throw err;
    io.err(
      `yardmaster ${command.words.join(" ")}: ${escapeControls(err.message)}\nsee: yardmaster ${command.words.join(" ")} --help\n`,
    );
    return EXIT.usage;
  }
}

const FOOT = `\`yardmaster COMMAND --help\` explains one; \`yardmaster --version\` prints the version.
`;

function leadingWords(argv: readonly string[]): readonly string[] {
  const end = argv.findIndex((arg) => arg.startsWith("-"));
  return end < 0 ? argv : argv.slice(0, end);
}

function asksForHelp(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return (end < 0 ? args : args.slice(0, end)).some((arg) => arg === "--help" || arg === "-h");
}

/** `yardmaster` alone and `yardmaster ctl` list what there is; a wrong word gets its nearest neighbour. */
function explainUnknown(
  argv: readonly string[],
  words: readonly string[],
  commands: readonly Command[],
  io: CliIo,
): number {
  let depth = 0;
  let within = commands;
  while (words[depth] !== undefined) {
    const narrower = within.filter((command) => command.words[depth] === words[depth]);
    if (narrower.length === 0) break;
    within = narrower;
    depth += 1;
  }
  const wrong = words[depth];
  const listing = `usage: yardmaster ${[...words.slice(0, depth), "COMMAND"].join(" ")} [options]\n\n${listCommands(within, depth)}\n\n${FOOT}`;
  if (wrong === undefined && asksForHelp(argv)) {
    io.out(listing);
    return EXIT.done;
  }
  if (wrong === undefined) {
    const option = argv[depth];
    io.err(option === undefined ? listing : `yardmaster: unknown option ${escapeControls(option)}\n\n${listing}`);
    return EXIT.usage;
  }
  const near = nearest(
    wrong,
    within.map((command) => command.words[depth] ?? ""),
  );
  const hint = near === undefined ? "" : `; did you mean \`${near}\`?`;
  // What was wrong stays in sight: a list of all commands would push it off the screen.
  const see = `see: ${["yardmaster", ...words.slice(0, depth), "--help"].join(" ")}`;
  io.err(`yardmaster: unknown command \`${escapeControls(words.slice(0, depth + 1).join(" "))}\`${hint}\n${see}\n`);
  return EXIT.usage;
}

/** Words under which there are so many commands that they are listed by themselves. */
const GROUPS: Readonly<Record<string, string>> = {
  ctl: "ask a running gateway or control plane, and tell it what to do (`yardmaster ctl --help` lists it)",
};

function listCommands(commands: readonly Command[], depth: number): string {
  const rows = new Map<string, string>();
  for (const { words, summary } of commands) {
    const group = depth === 0 ? GROUPS[words[0] ?? ""] : undefined;
    rows.set(group === undefined ? words.join(" ") : `${words[0]} COMMAND`, group ?? summary);
  }
  const width = Math.max(...[...rows.keys()].map((name) => name.length));
  return [...rows].map(([name, summary]) => `  ${name.padEnd(width)}  ${summary}`).join("\n");
}
