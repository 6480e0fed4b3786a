import { z } from "zod";
import { issuedKey, keyList } from "../contract/admin-keys.ts";
import type { KeyView } from "../contract/admin-keys.ts";
import { CONFIG_ID } from "../contract/config-fields.ts";
import { escapeControls } from "../kernel/log.ts";
import { readArgs, usageError } from "./args.ts";
import { EXIT } from "./cli-io.ts";
import type { CliIo, Command } from "./cli-io.ts";
import { CTL_OPTIONS, CTL_OPTIONS_HELP, openCtlClient, reportFailure, reportShape, showAnswer } from "./ctl-client.ts";
import { formatTable } from "./table.ts";
import { KEY_OPTIONS, KEY_OPTIONS_HELP, readKeyFlags } from "./key-options.ts";

/** Ids go into the path, where ".." would mean something else. */
function readId(text: string | undefined): string {
  if (text === undefined || !CONFIG_ID.test(text))
    throw usageError("ID: use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit");
  return text;
}

const list: Command = {
  words: ["ctl", "key", "list"],
  summary: "list a running gateway's keys",
  help: `usage: yardmaster ctl key list [options]\n\nLists the keys that are let in. Keys themselves are never shown.\n\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values } = readArgs(args, CTL_OPTIONS, { names: [] });
    const client = await openCtlClient(values, io);
    const answer = await client.request("GET", "/admin/keys");
    if (answer.kind !== "done") return reportFailure(answer, io);
    const parsed = keyList.safeParse(answer.body);
    if (!parsed.success) return reportShape(io);
    io.out(values.json ? `${JSON.stringify(parsed.data.keys)}\n` : formatKeys(parsed.data.keys, io.columns));
    return EXIT.done;
  },
};

function formatKeys(keys: readonly KeyView[], width: number | null): string {
  const rows = keys.map((key) => [
    key.id,
    key.role,
    key.source,
    key.classes.join(","),
    key.models?.join(",") ?? "all",
    key.expires ?? "never",
    key.last_used ?? "-",
  ]);
  return formatTable(["ID", "ROLE", "SOURCE", "CLASSES", "MODELS", "EXPIRES", "LAST USED"], rows, { width });
}

function showIssued(body: unknown, json: boolean, io: CliIo): number {
  const parsed = issuedKey.safeParse(body);
  if (!parsed.success) return reportShape(io);
  const { id, key, old_valid_until: oldValidUntil } = parsed.data;
  if (json) io.out(`${JSON.stringify(parsed.data)}\n`);
  else {
    io.out(`key ${escapeControls(id)} (shown once, keep it safe):\n\n    ${escapeControls(key)}\n`);
    if (oldValidUntil !== null) io.err(`the old key is valid until ${escapeControls(oldValidUntil)}\n`);
  }
  return EXIT.done;
}

const create: Command = {
  words: ["ctl", "key", "new"],
  summary: "make a key in a running gateway",
  help: `usage: yardmaster ctl key new --id ID [options]\n\nMakes a key that works at once, and prints it once.\n\n${KEY_OPTIONS_HELP}${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values } = readArgs(args, { ...KEY_OPTIONS, ...CTL_OPTIONS }, { names: [] });
    const { given } = readKeyFlags(values);
    const client = await openCtlClient(values, io);
    const answer = await client.request("POST", "/admin/keys", given);
    return answer.kind === "done" ? showIssued(answer.body, values.json, io) : reportFailure(answer, io);
  },
};

const revokedKey = z.object({ id: z.string(), revoked: z.literal(true) });

const revoke: Command = {
  words: ["ctl", "key", "revoke"],
  summary: "end a key of a running gateway",
  help: `usage: yardmaster ctl key revoke ID [options]\n\nNew requests with the key are refused at once. Keys of the configuration file are ended by taking them out of it.\n\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, CTL_OPTIONS, { names: ["ID"] });
    const id = readId(positionals[0]);
    const client = await openCtlClient(values, io);
    const answer = await client.request("DELETE", `/admin/keys/${id}`);
    return showAnswer(answer, revokedKey, values, io, () => `revoked ${escapeControls(id)}\n`);
  },
};

const rotate: Command = {
  words: ["ctl", "key", "rotate"],
  summary: "replace a key of a running gateway by a new one",
  help: `usage: yardmaster ctl key rotate ID [--overlap-s N] [options]

Prints a new key with the same id and settings, once. The old one ends at once, or after the overlap.

  --overlap-s N           seconds for which both are valid (default 0)
${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(
      args,
      { ...CTL_OPTIONS, "overlap-s": { type: "string", default: "0" } },
      { names: ["ID"] },
    );
    const overlap = Number(values["overlap-s"]);
    if (values["overlap-s"].trim() === "" || !(overlap >= 0)) throw usageError("--overlap-s: use a number of seconds");
    const client = await openCtlClient(values, io);
    const answer = await client.request("POST", `/admin/keys/${readId(positionals[0])}/rotate`, { overlap_s: overlap });
    return answer.kind === "done" ? showIssued(answer.body, values.json, io) : reportFailure(answer, io);
  },
};

export const ctlKeyCommands: readonly Command[] = [list, create, revoke, rotate];
