import { issuedKey, keyList, revokedKey } from "../contract/admin-keys.ts";
import type { KeyView } from "../contract/admin-keys.ts";
import { CONFIG_ID } from "../contract/config-fields.ts";
import { escapeControls } from "../kernel/log.ts";
import { readArgs, usageError } from "./args.ts";
import { EXIT } from "./cli-io.ts";
import type { CliIo, Command } from "./cli-io.ts";
import {
  CTL_OPTIONS,
  CTL_OPTIONS_HELP,
  openCtlClient,
  reportFailure,
  reportShape,
  type CtlAnswer,
  type CtlClient,
  type CtlFlags,
} from "./ctl-client.ts";
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

/** Of commands that change a key: each gateway has its own. */
const ALSO = { also: { type: "string", multiple: true, default: [] as string[] } } as const;
const ALSO_HELP = `  --also URL              another gateway that is to know it, as often as there are; the key of --key-file counts there too
`;

/** What became of a change at the gateways that were named. */
interface Outcome {
  readonly done: readonly { readonly url: string; readonly body: unknown }[];
  readonly refused: readonly { readonly url: string; readonly code: string; readonly message: string }[];
}

/** Opened before anything is changed, so that a mistake in an address changes nothing. One that is named twice is one. */
async function openAll(
  { also, ...flags }: CtlFlags & { readonly also: readonly string[] },
  io: CliIo,
): Promise<readonly [CtlClient, ...CtlClient[]]> {
  const first = await openCtlClient(flags, io);
  const others = new Map<string, CtlClient>();
  for (const url of also) {
    const client = await openCtlClient({ ...flags, url }, io);
    if (client.base !== first.base) others.set(client.base, client);
  }
  return [first, ...others.values()];
}

async function askAll(
  clients: readonly CtlClient[],
  ask: (client: CtlClient) => Promise<CtlAnswer>,
): Promise<Outcome & { readonly failure: Exclude<CtlAnswer, { kind: "done" }> | null }> {
  const done: { url: string; body: unknown }[] = [];
  const refused: { url: string; code: string; message: string }[] = [];
  let failure: Exclude<CtlAnswer, { kind: "done" }> | null = null;
  for (const client of clients) {
    const answer = await ask(client);
    if (answer.kind === "done") done.push({ url: client.base, body: answer.body });
    else {
      const code = answer.kind === "refused" ? answer.code : "UNREACHABLE";
      refused.push({ url: client.base, code, message: answer.message });
      failure ??= answer;
    }
  }
  return { done, refused, failure };
}

interface Sharing {
  readonly sharing: number | null;
  readonly forOthers: string;
  /** Gateways that were asked to end a key and have none of this id. */
  readonly unknown?: readonly string[];
}

const notDone = ({ url, code, message }: Outcome["refused"][number]): string =>
  `not done at ${escapeControls(url)}: ${escapeControls(code)}: ${escapeControls(message)}\n`;

/** Where it holds, and what is left to be done for it to hold everywhere. */
function tellWhere({ done, refused }: Outcome, { sharing, forOthers, unknown = [] }: Sharing, io: CliIo): number {
  io.err(`done at ${done.map(({ url }) => escapeControls(url)).join(", ")}\n`);
  for (const url of unknown) io.err(`not known at ${escapeControls(url)}\n`);
  for (const refusal of refused) io.err(notDone(refusal));
  const others = (sharing ?? 1) - done.length - unknown.length;
  if (others > 0)
    io.err(
      `${others} more ${others === 1 ? "gateway shares" : "gateways share"} its Redis and ${others === 1 ? "knows" : "know"} nothing of it: ${forOthers}\n`,
    );
  return refused.length > 0 ? EXIT.failed : EXIT.done;
}

const shownWhere = ({ done, refused }: Outcome): object => ({ done_at: done.map(({ url }) => url), refused });

/** `ask`: how a gateway is asked, with the hash of the key that the first one has made. */
async function issue(
  flags: CtlFlags & { readonly also: readonly string[]; readonly json: boolean },
  io: CliIo,
  ask: (client: CtlClient, hash: object) => Promise<CtlAnswer>,
): Promise<number> {
  const [client, ...others] = await openAll(flags, io);
  const answer = await ask(client, {});
  if (answer.kind !== "done") return reportFailure(answer, io);
  const parsed = issuedKey.safeParse(answer.body);
  if (!parsed.success || parsed.data.key === null) return reportShape(io);
  const { id, key, hash, old_valid_until: oldValidUntil, sharing } = parsed.data;
  // Shown before anything else can fail: nobody else will ever show it.
  if (!flags.json) io.out(`key ${escapeControls(id)} (shown once, keep it safe):\n\n    ${escapeControls(key)}\n`);
  const elsewhere = await askAll(others, (other) => ask(other, { hash }));
  const where = { ...elsewhere, done: [{ url: client.base, body: answer.body }, ...elsewhere.done] };
  if (flags.json) io.out(`${JSON.stringify({ ...parsed.data, ...shownWhere(where) })}\n`);
  if (oldValidUntil !== null) io.err(`the old key is valid until ${escapeControls(oldValidUntil)}\n`);
  const forOthers = `name each with --also, or put the hash into its file: ${hash}`;
  return tellWhere(where, { sharing, forOthers }, io);
}

const create: Command = {
  words: ["ctl", "key", "new"],
  summary: "make a key in a running gateway",
  help: `usage: yardmaster ctl key new --id ID [options]\n\nMakes a key that works at once at the gateways that are named, and prints it once.\n\n${KEY_OPTIONS_HELP}${ALSO_HELP}${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values } = readArgs(args, { ...KEY_OPTIONS, ...ALSO, ...CTL_OPTIONS }, { names: [] });
    const { given } = readKeyFlags(values);
    return issue(values, io, (client, hash) => client.request("POST", "/admin/keys", { ...given, ...hash }));
  },
};

const revoke: Command = {
  words: ["ctl", "key", "revoke"],
  summary: "end a key of a running gateway",
  help: `usage: yardmaster ctl key revoke ID [options]\n\nNew requests with the key are refused at once. Keys of the configuration file are ended by taking them out of it.\n\n${ALSO_HELP}${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, { ...ALSO, ...CTL_OPTIONS }, { names: ["ID"] });
    const id = readId(positionals[0]);
    const clients = await openAll(values, io);
    // All of them, whatever the first one says: it may be away, or have ended the key when this was tried before.
    const where = await askAll(clients, (client) => client.request("DELETE", `/admin/keys/${id}`));
    const [done] = where.done;
    if (done === undefined) {
      if (clients.length > 1 && !values.json) for (const refusal of where.refused) io.err(notDone(refusal));
      return where.failure === null ? EXIT.failed : reportFailure(where.failure, io);
    }
    const parsed = revokedKey.safeParse(done.body);
    if (!parsed.success) return reportShape(io);
    io.out(
      values.json ? `${JSON.stringify({ ...parsed.data, ...shownWhere(where) })}\n` : `revoked ${escapeControls(id)}\n`,
    );
    const { sharing } = parsed.data;
    const isUnknown = ({ code }: Outcome["refused"][number]): boolean => code === "KEY_UNKNOWN";
    const unknown = where.refused.filter(isUnknown).map(({ url }) => url);
    const refused = where.refused.filter((refusal) => !isUnknown(refusal));
    return tellWhere({ ...where, refused }, { sharing, forOthers: "name each that has it with --also", unknown }, io);
  },
};

const rotate: Command = {
  words: ["ctl", "key", "rotate"],
  summary: "replace a key of a running gateway by a new one",
  help: `usage: yardmaster ctl key rotate ID [--overlap-s N] [options]

Prints a new key with the same id and settings, once. The old one ends at once, or after the overlap.

  --overlap-s N           seconds for which both are valid (default 0)
${ALSO_HELP}${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(
      args,
      { ...ALSO, ...CTL_OPTIONS, "overlap-s": { type: "string", default: "0" } },
      { names: ["ID"] },
    );
    const overlap = Number(values["overlap-s"]);
    if (values["overlap-s"].trim() === "" || !(overlap >= 0)) throw usageError("--overlap-s: use a number of seconds");
    const path = `/admin/keys/${readId(positionals[0])}/rotate`;
    return issue(values, io, (client, hash) => client.request("POST", path, { overlap_s: overlap, ...hash }));
  },
};

export const ctlKeyCommands: readonly Command[] = [list, create, revoke, rotate];
