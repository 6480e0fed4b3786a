import { stringify } from "yaml";
import { newKey } from "../contract/key-hash.ts";
import { readArgs } from "./args.ts";
import { EXIT } from "./cli-io.ts";
import type { Command } from "./cli-io.ts";
import { KEY_OPTIONS, KEY_OPTIONS_HELP, readKeyFlags } from "./key-options.ts";

const create: Command = {
  words: ["key", "new"],
  summary: "make a key for the configuration file",
  help: `usage: yardmaster key new --id ID [options]

Prints a new key once, and the lines for \`auth.keys\` of the configuration file. The file gets the key's hash only; nobody
can print the key again. Nothing is changed: to make a key in a running gateway, use \`yardmaster ctl key new\`.

${KEY_OPTIONS_HELP}  --output json, -o json  JSON on standard output, and nothing else there
  --help                  this text
`,
  async run(args, io) {
    const { values } = readArgs(args, { ...KEY_OPTIONS, json: { type: "boolean", default: false } }, { names: [] });
    const { given } = readKeyFlags(values);
    const made = newKey();
    const { id, ...rest } = given;
    const entry = { id, hash: `sha256:${made.hash}`, ...rest };
    if (values.json) {
      io.out(`${JSON.stringify({ key: made.key.reveal(), entry })}\n`);
      return EXIT.done;
    }
    const lines = stringify([entry], { version: "1.2", lineWidth: 0 }).trimEnd().split("\n");
    io.out(
      `key (shown once, keep it safe):\n\n    ${made.key.reveal()}\n\nlines for the configuration file, below \`auth:\` and \`keys:\`\n\n${lines.map((line) => `    ${line}`).join("\n")}\n`,
    );
    return EXIT.done;
  },
};

export const keyCommands: readonly Command[] = [create];
