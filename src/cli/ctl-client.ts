import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { ParseArgsOptionsConfig } from "node:util";
import type { z } from "zod";
import { ADDRESSES_FILE, localAddresses, type LocalAddresses } from "../contract/local-addresses.ts";
import type { Env } from "../contract/resolve-config.ts";
import { readIfThere } from "../kernel/durable-file.ts";
import type { Clock } from "../kernel/clock.ts";
import { withDeadline } from "../kernel/deadline.ts";
import { escapeControls } from "../kernel/log.ts";
import { Secret } from "../kernel/secret.ts";
import { usageError } from "./args.ts";
import { EXIT } from "./cli-io.ts";
import type { CliIo } from "./cli-io.ts";
import type { TableShape } from "./table.ts";

/** Options of every `ctl` command. */
export const CTL_OPTIONS = {
  url: { type: "string" },
  "key-file": { type: "string" },
  "data-dir": { type: "string", default: "data" },
  json: { type: "boolean", default: false },
} as const satisfies ParseArgsOptionsConfig;

export const CTL_OPTIONS_HELP = `  --url URL               gateway (default $YARDMASTER_URL, else that of an \`up\` whose data folder this is, else
                          http://127.0.0.1:8200)
  --key-file FILE         file with the key (default: $YARDMASTER_KEY, else operator.key in the data folder)
  --data-dir DIR          data folder of a gateway on this machine (default ./data)
  --output json, -o json  JSON on standard output, and nothing else there
  --help                  this text

exit codes: 0 done, 1 refused, 2 usage, 3 gateway not reached
`;

/** For commands that ask a control plane. */
export const CONTROL_OPTIONS_HELP = `  --url URL               control plane (default $YARDMASTER_URL, else that of an \`up\` whose data folder this is, else
                          http://127.0.0.1:8300)
  --key-file FILE         file with the key (default: $YARDMASTER_KEY, else operator.key in the data folder)
  --data-dir DIR          data folder of a control plane on this machine (default ./data)
  --output FORMAT, -o FORMAT
                          table (default, shortened to the terminal's width), wide (all of it, and more columns) or json
  --help                  this text

exit codes: 0 done, 1 refused, 2 usage, 3 control plane not reached
`;

export interface CtlFlags {
  readonly url?: string | undefined;
  readonly "key-file"?: string | undefined;
  readonly "data-dir": string;
}

export type CtlAnswer =
  | { readonly kind: "done"; readonly status: number; readonly body: unknown }
  /** The gateway, or something in its place, answered with no. */
  | {
      readonly kind: "refused";
      readonly status: number;
      readonly code: string;
      readonly message: string;
      /** What else it said. */
      readonly details?: unknown;
    }
  | { readonly kind: "unreachable"; readonly message: string };

export interface CtlClient {
  /** Without a slash at the end. */
  readonly base: string;
  /** `path` begins with "/". Never throws, but for the caller's own abort. */
  request(
    method: "GET" | "POST" | "PUT" | "DELETE",
    path: string,
    body?: unknown,
    headers?: Readonly<Record<string, string>>,
  ): Promise<CtlAnswer>;
  /** Reads address and key anew. Throws as `openCtlClient`. */
  reopen(): Promise<CtlClient>;
}

/** A body that is sent as it is; anything else is sent as JSON. */
export class TextBody {
  readonly type: string;
  readonly text: string;

  constructor(type: string, text: string) {
    this.type = type;
    this.text = text;
  }
}

const ANSWER_MS_MAX = 30_000;
const ANSWER_BYTES_MAX = 33_554_432;

/** Where they are when nobody says otherwise. */
const USUAL_URLS: LocalAddresses = { gateway: "http://127.0.0.1:8200", control: "http://127.0.0.1:8300" };

/** The address without a slash at the end, and the key. Throws USAGE for a URL or a key file that can't be used. */
export async function readConnection(
  flags: CtlFlags,
  io: CliIo,
  asked: keyof LocalAddresses = "gateway",
): Promise<{ readonly base: string; readonly key: Secret | undefined }> {
  const url = flags.url ?? nonEmpty(io.env["YARDMASTER_URL"]) ?? (await localUrls(flags["data-dir"]))[asked];
  return { base: readBaseUrl(url), key: await readKey(flags, io.env) };
}

async function localUrls(dataDir: string): Promise<LocalAddresses> {
  try {
    const text = await readIfThere(join(dataDir, ADDRESSES_FILE));
    return text === null ? USUAL_URLS : localAddresses.parse(JSON.parse(text));
  } catch {
    return USUAL_URLS;
  }
}

/** Throws USAGE for a URL or a key file that can't be used. */
export async function openCtlClient(
  flags: CtlFlags,
  io: CliIo,
  asked: keyof LocalAddresses = "gateway",
): Promise<CtlClient> {
  const { base, key } = await readConnection(flags, io, asked);
  return {
    base,
    request: (method, path, body, headers = {}) =>
      send({ base, key, clock: io.clock, signal: io.signal }, { method, path, body, headers }),
    reopen: () => openCtlClient(flags, io, asked),
  };
}

const nonEmpty = (text: string | undefined): string | undefined => (text === "" ? undefined : text);

function readBaseUrl(text: string): string {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:"))
    throw usageError("--url: use an http:// or https:// URL");
  if (url.username !== "" || url.password !== "")
    throw usageError("--url: put the key in a file (--key-file), not in the URL");
  return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
}

async function readKey(flags: CtlFlags, env: Env): Promise<Secret | undefined> {
  const named = flags["key-file"];
  const fromEnv = nonEmpty(env["YARDMASTER_KEY"]);
  if (named === undefined && fromEnv !== undefined) return new Secret(fromEnv.trim());
  const path = named ?? join(flags["data-dir"], "operator.key");
  try {
    const text = (await readFile(path, "utf8")).trim();
    if (text === "" || /\s/.test(text)) throw usageError(`${path}: holds no single key`);
    return new Secret(text);
  } catch (err) {
    if (!(err instanceof Error && "code" in err)) throw err;
    if (err.code === "USAGE") throw err;
    // Without a key the gateway itself says whether one is needed.
    if (named === undefined && (err.code === "ENOENT" || err.code === "ENOTDIR")) return undefined;
    throw usageError(`${path}: the key file can't be read (${String(err.code)})`);
  }
}

interface Connection {
  readonly base: string;
  readonly key: Secret | undefined;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
  readonly headers: Readonly<Record<string, string>>;
}

async function send(connection: Connection, { method, path, body, headers: extra }: Sent): Promise<CtlAnswer> {
  using deadline = withDeadline(connection.clock, ANSWER_MS_MAX, connection.signal);
  const headers: Record<string, string> = { ...extra, accept: "application/json" };
  if (connection.key !== undefined) headers["authorization"] = `Bearer ${connection.key.reveal()}`;
  if (body !== undefined) headers["content-type"] = body instanceof TextBody ? body.type : "application/json";
  try {
    // A redirect would carry the key to wherever it points.
    const init: RequestInit = { method, headers, redirect: "manual", signal: deadline.signal };
    const response = await fetch(
      `${connection.base}${path}`,
      body === undefined ? init : { ...init, body: body instanceof TextBody ? body.text : JSON.stringify(body) },
    );
    return readAnswer(response.status, await readText(response));
  } catch (err) {
    connection.signal.throwIfAborted();
    return { kind: "unreachable", message: `${connection.base}: ${describeFailure(err)}` };
  }
}

async function readText(response: Response): Promise<string> {
  let text = "";
  if (response.body === null) return text;
  const decoder = new TextDecoder();
  for await (const chunk of response.body) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > ANSWER_BYTES_MAX) throw new Error("the answer is larger than 32 MiB");
  }
  return text + decoder.decode();
}

function readAnswer(status: number, text: string): CtlAnswer {
  let body: unknown;
  try {
    body = text === "" ? null : JSON.parse(text);
  } catch {
    return {
      kind: "refused",
      status,
      code: "NOT_JSON",
      message: `the answer (status ${status}) is not JSON: is this a Yardmaster gateway?`,
    };
  }
  if (status >= 200 && status < 300) return { kind: "done", status, body };
  const error = field(body, "error");
  const code = field(error, "code");
  const message = field(error, "message");
  return {
    kind: "refused",
    status,
    code: typeof code === "string" ? code : "UNKNOWN",
    message: typeof message === "string" ? message : `status ${status}`,
    details: field(body, "details"),
  };
}

const field = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined;

/** `fetch` wraps the cause that a person needs: refused, unknown name, no answer in time. */
function describeFailure(err: unknown): string {
  if (!(err instanceof Error)) return String(err);
  const cause = err.cause;
  if (cause instanceof AggregateError)
    return cause.errors.map((inner) => (inner instanceof Error ? inner.message : String(inner))).join("; ");
  return cause instanceof Error ? cause.message : err.message;
}

/** What the other role says to a question that is not for it, and what something else does. */
const ANOTHER_PLACE: ReadonlySet<string> = new Set(["ROUTE_UNKNOWN", "METHOD_NOT_ALLOWED", "BAD_JSON", "UNKNOWN"]);

/** Says on stderr why a command did not get through, and returns its exit code. */
export function reportFailure(
  answer: Exclude<CtlAnswer, { kind: "done" }>,
  io: CliIo,
  asked: "gateway" | "control plane" = "gateway",
): number {
  if (answer.kind === "unreachable") {
    io.err(`yardmaster: the ${asked} was not reached at ${escapeControls(answer.message)}\n`);
    return EXIT.unreachable;
  }
  io.err(`yardmaster: refused (${answer.status} ${escapeControls(answer.code)}): ${escapeControls(answer.message)}\n`);
  if (ANOTHER_PLACE.has(answer.code))
    io.err(
      `This command asks a ${asked}, which is usually at port ${new URL(USUAL_URLS[asked === "gateway" ? "gateway" : "control"]).port}: is what --url or YARDMASTER_URL names one?\n`,
    );
  if (answer.code === "UNAUTHORIZED") {
    io.err(
      "The key comes from --key-file, else YARDMASTER_KEY, else operator.key in --data-dir, which an `up` writes for as long as it runs.\n" +
        `For a ${asked}, make one with \`yardmaster key new --id NAME --role admin\` and put its lines into the configuration.\n`,
    );
  }
  return EXIT.failed;
}

/** Says that an answer has the right status and the wrong shape: something else answers there, or another version does. */
export function reportShape(io: CliIo, asked: "gateway" | "control plane" = "gateway"): number {
  const named = asked === "gateway" ? "Yardmaster gateway" : asked;
  io.err(`yardmaster: the answer is not what this command knows: is this a ${named} of the same version?\n`);
  return EXIT.failed;
}

/** Prints what was answered, in words or as JSON. Returns the exit code. */
export function showAnswer<T>(
  answer: CtlAnswer,
  schema: z.ZodType<T>,
  { json }: { readonly json: boolean },
  io: CliIo,
  format: (value: T, shape: TableShape) => string,
): number {
  if (answer.kind !== "done") return reportFailure(answer, io);
  const parsed = schema.safeParse(answer.body);
  if (!parsed.success) return reportShape(io);
  io.out(json ? `${JSON.stringify(parsed.data)}\n` : format(parsed.data, { width: io.columns, wide: false }));
  return EXIT.done;
}
