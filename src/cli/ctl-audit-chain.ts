import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { SIGNING_KEY_FILE } from "../contract/audit-chain.ts";
import { CONTROL_ROUTES } from "../contract/control-api.ts";
import { valueIn, type Env } from "../contract/env.ts";
import { ChainCheck, type ChainVerdict, type MacCheck } from "../decide/audit/chain-lines.ts";
import { hasSystemCode, messageOf } from "../kernel/errors.ts";
import { escapeControls } from "../kernel/log.ts";
import { Secret } from "../kernel/secret.ts";
import { Signer } from "../kernel/signer.ts";
import { readArgs, usageError } from "./args.ts";
import { EXIT, type Command } from "./cli-io.ts";
import { CTL_OPTIONS, CTL_OPTIONS_HELP, openCtlClient, reportFailure } from "./ctl-client.ts";

const page = z.object({
  lines: z.array(z.string()),
  last: z.int().nullable(),
  seal: z.string().nullable(),
});
/** An entry has a bound; what is longer is none. */
const LINE_CHARS_MAX = 65_536;
const LINE_FEED = "\n";

const GATEWAY_ROUTE = "/admin/audit/chain";
const EXPORT_OPTIONS = {
  ...CTL_OPTIONS,
  after: { type: "string", default: "0" },
  control: { type: "boolean", default: false },
} as const;

const auditExport: Command = {
  words: ["ctl", "audit", "export"],
  summary: "print the signed chain of what administrators did and what was spent",
  help: `usage: yardmaster ctl audit export [--after N] [options] > FILE\n\nPrints the chain of one gateway, or with --control of one control plane: a line for each entry, and the seal that says where it ends. Each has its own; those that share a data folder, as in \`up\`, have one.\n\n  --control               of a control plane; --url then names that\n  --after N               only entries with a higher number\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values } = readArgs(args, EXPORT_OPTIONS, { names: [] });
    if (!/^\d{1,15}$/.test(values.after)) throw usageError("--after: use a number");
    const client = await openCtlClient(values, io, values.control ? "control" : "gateway");
    const route = values.control ? CONTROL_ROUTES.auditChain : GATEWAY_ROUTE;
    let after = Number(values.after);
    let first: number | null = null;
    for (;;) {
      const query = `after_seq=${after}${first === null ? "" : `&first=${first}`}`;
      const answer = await client.request("GET", `${route}?${query}`);
      if (answer.kind !== "done") return reportFailure(answer, io);
      const parsed = page.safeParse(answer.body);
      if (!parsed.success || (parsed.data.seal === null && parsed.data.last === null)) {
        io.err(
          `the answer is no page of the audit's chain: is this a Yardmaster ${values.control ? "control plane" : "gateway"}?\n`,
        );
        return EXIT.failed;
      }
      const { lines, last, seal } = parsed.data;
      io.out([...lines, ...(seal === null ? [] : [seal])].map((line) => `${line}${LINE_FEED}`).join(""));
      if (seal !== null) return EXIT.done;
      first ??= firstOf(lines[0]);
      after = last ?? after;
    }
  },
};

const firstOf = (line: string | undefined): number => Number(/^\{"seq":(\d+)/.exec(line ?? "")?.[1] ?? 1);

const VERIFY_OPTIONS = {
  "secret-file": { type: "string", multiple: true, default: [] as string[] },
  "secret-env": { type: "string", multiple: true, default: [] as string[] },
  "data-dir": { type: "string", default: "data" },
  hashes: { type: "boolean", default: false },
  who: { type: "string" },
  json: { type: "boolean", default: false },
} as const;

const auditVerify: Command = {
  words: ["ctl", "audit", "verify"],
  summary: "check an export of the audit's chain, offline",
  help: `usage: yardmaster ctl audit verify FILE [options]

Says whether each entry is as it was written and where it was written, and where the chain ends; else the first number at
which it is not. Nobody is asked.

  --secret-file FILE      the signing secret (default: ${SIGNING_KEY_FILE} in the data folder); more than one after a change
  --secret-env NAME       the same in an environment variable
  --data-dir DIR          data folder of the gateway or control plane (default ./data)
  --hashes                check the hashes alone: who could write the file could have made the chain anew
  --who KEY_ID            list the numbers of the entries of this key
  --output json, -o json  JSON on standard output, and nothing else there
  --help                  this text

exit codes: 0 the chain is whole, 1 it is not, 2 usage
`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, VERIFY_OPTIONS, { names: ["FILE"] });
    const signer = values.hashes ? null : await readSigner(values, io.env);
    if (values.who !== undefined && signer === null) throw usageError("--who: names are told by the signing secret");
    const check = new ChainCheck(sha256, signer === null ? null : macCheck(signer));
    const who = values.who === undefined ? null : `"who":"${signer?.pseudonym(values.who)}"`;
    const theirs: string[] = [];
    try {
      for await (const line of linesOf(positionals[0] ?? "")) {
        check.push(line);
        if (who !== null && line.includes(who)) theirs.push(`${firstOf(line)}`);
      }
    } catch (error) {
      throw usageError(`${positionals[0]}: can't be read (${messageOf(error)})`);
    }
    const verdict = check.end();
    if (values.json) io.out(`${JSON.stringify({ ...verdict, ...(who === null ? {} : { theirs }) })}${LINE_FEED}`);
    else
      io.out(
        `${escapeControls(tell(verdict))}${LINE_FEED}${who === null ? "" : `entries of ${values.who}: ${theirs.join(", ") || "none"}${LINE_FEED}`}`,
      );
    return verdict.kind === "broken" ? EXIT.failed : EXIT.done;
  },
};

function tell(verdict: ChainVerdict): string {
  switch (verdict.kind) {
    case "whole": {
      const signed = verdict.signed ? "and signed" : "by its hashes alone; its signatures were not checked";
      return `whole: entries ${verdict.first} to ${verdict.last} of chain ${verdict.chain}, ${signed}`;
    }
    case "empty":
      return "whole: there is no entry";
    case "broken":
      return `NOT WHOLE: first bad sequence number ${verdict.seq}: ${verdict.why}`;
    default:
      return verdict satisfies never;
  }
}

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

const macCheck =
  (signer: Signer): MacCheck =>
  (key, text, mac) =>
    signer.keysFor("audit chain").some(({ id }) => id === key)
      ? signer.verify("audit chain", text, { key, mac })
      : null;

async function readSigner(
  values: {
    readonly "secret-file": readonly string[];
    readonly "secret-env": readonly string[];
    readonly "data-dir": string;
  },
  env: Env,
): Promise<Signer> {
  const named = values["secret-env"].map((name) => {
    const value = valueIn(env, name);
    if (value === undefined) throw usageError(`--secret-env: ${name} is not set`);
    return new Secret(value);
  });
  const usual = named.length === 0 && values["secret-file"].length === 0;
  const files = usual ? [join(values["data-dir"], SIGNING_KEY_FILE)] : values["secret-file"];
  const [first, ...others] = [...named, ...(await Promise.all(files.map(readSecret)))];
  if (first === undefined) throw usageError("name the signing secret");
  return new Signer([first, ...others]);
}

async function readSecret(path: string): Promise<Secret> {
  try {
    const text = (await readFile(path, "utf8")).trim();
    if (text === "") throw usageError(`${path}: holds no secret`);
    return new Secret(text);
  } catch (error) {
    if (!hasSystemCode(error, "ENOENT")) throw error;
    throw usageError(
      `${path}: there is no signing secret; name it with --secret-file or --secret-env, or say --hashes`,
    );
  }
}

/** Whatever is in the file, no more of it is held than one line may be long. */
async function* linesOf(path: string): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of createReadStream(path, { encoding: "utf8" })) {
    const lines = (rest + String(chunk)).split(LINE_FEED);
    rest = (lines.pop() ?? "").slice(0, LINE_CHARS_MAX);
    yield* lines;
  }
  if (rest !== "") yield rest;
}

export const CTL_CHAIN_COMMANDS: readonly Command[] = [auditExport, auditVerify];
