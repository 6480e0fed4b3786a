import {
  filesUnavailable,
  type CreateOutcome,
  type DocKind,
  type DocPlace,
  type FileLimits,
  type FileListQuery,
  type FileStore,
  type FileTotals,
  type OpenDoc,
  type PieceOutcome,
  type StoredDoc,
} from "../files/file-store.ts";
import { itemsOf, type Argument, type Reply } from "./redis-connection.ts";
import type { RedisLink, StepOptions, StepOutcome } from "./redis-link.ts";
import { allowingOutOfMemory, loadScript, type Script } from "./script.ts";
import { whyNothing } from "./step-answer.ts";

export interface RedisFileStoreOptions {
  readonly link: RedisLink;
  /** Another way to the same server, for bytes that would hold up what is asked on the first. Closed with the store. */
  readonly bytesLink: RedisLink;
  readonly limits: FileLimits;
}

const script = (name: string): Script => loadScript(new URL(`./${name}.lua`, import.meta.url));
const DOC = script("file-doc");
const DOC_ON = allowingOutOfMemory(DOC, "file-doc-on");
const PIECE = script("file-piece");
const PIECE_ON = allowingOutOfMemory(PIECE, "file-piece-on");

/** What nobody looks after any more goes by itself. */
const KEPT_BEYOND_MS = 7 * 86_400_000;
/** Beyond the longest life of a file. */
const INDEX_MS = 120 * 86_400_000;
const PATIENT_MS = 1_000;
const PIECE_MS = 5_000;
const EXPIRED_MAX = 16;

const PATIENTLY: StepOptions = { timeoutMs: PATIENT_MS };

/** Files in Redis, seen by all gateways of one `key_prefix`. All of it has one hash tag, so a cluster keeps it on one node. */
export class RedisFileStore implements FileStore {
  readonly kind = "redis";
  readonly #link: RedisLink;
  readonly #bytesLink: RedisLink;
  readonly #limits: FileLimits;
  readonly #tag: string;

  constructor({ link, bytesLink, limits }: RedisFileStoreOptions) {
    this.#link = link;
    this.#bytesLink = bytesLink;
    this.#limits = limits;
    this.#tag = `{${link.settings.keyPrefix}:files}`;
  }

  async now(): Promise<number> {
    const [seconds, micros] = itemsOf(await this.#command("TIME", []));
    return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
  }

  async create(id: string, text: string, place: DocPlace): Promise<CreateOutcome> {
    const unfit = this.#link.facts?.unfitForJobs ?? null;
    // A server that throws texts away when it is full would forget what it was given.
    if (unfit !== null) throw filesUnavailable(unfit);
    const said = await this.#doc(DOC, id, 0, text, place);
    if (said === "ok") return "created";
    if (said === "docs" || said === "open") return said;
    throw filesUnavailable(`it said ${said}`);
  }

  async read(id: string): Promise<StoredDoc | undefined> {
    return (await this.#read(id))?.doc;
  }

  async write(id: string, version: number, text: string, place: DocPlace): Promise<boolean> {
    return (await this.#doc(DOC_ON, id, version, text, place)) === "ok";
  }

  async forget(id: string, version: number): Promise<boolean> {
    const found = await this.#read(id);
    if (found === undefined || found.doc.version !== version) return false;
    const place = { kind: found.kind, keyId: found.keyId, shown: false, open: false, expiresAt: 0 };
    return (await this.#doc(DOC_ON, id, version, "", place)) === "ok";
  }

  async list({ kind, keyId, limit, after, oldestFirst }: FileListQuery): Promise<readonly StoredDoc[]> {
    const key = keyId === null ? this.#named(`list:${kind}`) : this.#named(`list:${kind}:${keyId}`);
    const [from, to, order] = oldestFirst
      ? [after === null ? "-inf" : `(${after}`, "+inf", []]
      : [after === null ? "+inf" : `(${after}`, "-inf", ["REV"]];
    return this.#all(await this.#command("ZRANGE", [key, from, to, "BYSCORE", ...order, "LIMIT", 0, limit]));
  }

  async open(limit: number): Promise<readonly OpenDoc[]> {
    const ids = itemsOf(await this.#command("ZRANGE", [this.#named("open"), 0, limit - 1])).map(String);
    if (ids.length === 0) return [];
    const keys = itemsOf(await this.#command("HMGET", [this.#named("owners"), ...ids]));
    return ids.map((id, index) => ({ id, keyId: String(keys[index] ?? "") }));
  }

  async putPiece(id: string, name: string, bytes: Buffer, bounded: boolean): Promise<PieceOutcome> {
    const said = await this.#pieces(id, [name, bytes], bounded);
    return said === "kept" || said === "bytes" ? said : "unknown";
  }

  async piece(id: string, name: string): Promise<Buffer | undefined> {
    const args = [this.#named(`bytes:${id}`), name];
    const outcome = await this.#bytesLink.command("HGET", args, { buffers: true, timeoutMs: PIECE_MS });
    const reply = replyOf(outcome);
    return Buffer.isBuffer(reply) ? reply : undefined;
  }

  async dropPieces(id: string, names: readonly string[]): Promise<void> {
    if (names.length > 0)
      await this.#pieces(
        id,
        names.flatMap((name) => [name, ""]),
        false,
      );
  }

  async sweep(): Promise<void> {
    const expiry = this.#named("expiry");
    const args = [expiry, "-inf", await this.now(), "BYSCORE", "LIMIT", 0, EXPIRED_MAX];
    for (const each of itemsOf(await this.#command("ZRANGE", args))) {
      const id = String(each);
      const found = await this.#read(id);
      if (found !== undefined) await this.forget(id, found.doc.version);
      else await this.#forgetGone(id);
    }
  }

  async totals(): Promise<FileTotals> {
    const docs = Number(await this.#command("HLEN", [this.#named("owners")]));
    return { docs, bytes: Number((await this.#command("HGET", [this.#named("totals"), "bytes"])) ?? 0) };
  }

  close(): Promise<void> {
    this.#bytesLink.close();
    return Promise.resolve();
  }

  /** Its own keys have gone by themselves; what is counted of it goes now. */
  async #forgetGone(id: string): Promise<void> {
    const keyId = String((await this.#command("HGET", [this.#named("owners"), id])) ?? "");
    const kind = id.startsWith("batch") ? "batch" : "file";
    await this.#doc(DOC_ON, id, "gone", "", { kind, keyId, shown: false, open: false, expiresAt: 0 });
  }

  async #all(ids: Reply): Promise<StoredDoc[]> {
    const read = await Promise.all(itemsOf(ids).map((id) => this.read(String(id))));
    return read.filter((doc) => doc !== undefined);
  }

  async #read(
    id: string,
  ): Promise<{ readonly doc: StoredDoc; readonly kind: DocKind; readonly keyId: string } | undefined> {
    const args = [this.#named(`doc:${id}`), "t", "v", "s", "k", "d"];
    const [text, version, seq, keyId, kind] = itemsOf(await this.#command("HMGET", args));
    if (typeof version !== "string") return undefined;
    const doc = { id, text: String(text ?? ""), version: Number(version), seq: Number(seq) };
    return { doc, kind: kind === "batch" ? "batch" : "file", keyId: String(keyId) };
  }

  async #doc(step: Script, id: string, version: number | "gone", text: string, place: DocPlace): Promise<string> {
    const { kind, keyId, shown, open, expiresAt } = place;
    const keys = [`doc:${id}`, `bytes:${id}`, "sizes", "owners", "totals", "counter", `list:${kind}`];
    keys.push(`list:${kind}:${keyId}`, "open", `open:${keyId}`, "expiry");
    const args: Argument[] = [id, version, text, keyId, kind, shown ? "1" : "", open ? "1" : "", expiresAt];
    args.push(KEPT_BEYOND_MS, INDEX_MS, this.#limits.docsMax, this.#limits.keyOpenMax);
    const named = keys.map((key) => this.#named(key));
    return String(replyOf(await this.#link.run(step, named, args, PATIENTLY)));
  }

  async #pieces(id: string, pieces: readonly Argument[], bounded: boolean): Promise<string> {
    const keys = [`doc:${id}`, `bytes:${id}`, "sizes", "totals"].map((key) => this.#named(key));
    const args: Argument[] = [id, bounded ? this.#limits.bytesMax : "", this.#limits.keyBytesMax];
    args.push(INDEX_MS, ...pieces);
    const step = bounded ? PIECE : PIECE_ON;
    return String(replyOf(await this.#bytesLink.run(step, keys, args, { timeoutMs: PIECE_MS })));
  }

  async #command(name: string, args: readonly Argument[]): Promise<Reply> {
    return replyOf(await this.#link.command(name, args, PATIENTLY));
  }

  #named(name: string): string {
    return `${this.#tag}:${name}`;
  }
}

function replyOf(outcome: StepOutcome): Reply {
  if (outcome.kind === "reply") return outcome.reply;
  throw filesUnavailable(whyNothing(outcome).slice(0, 200));
}
