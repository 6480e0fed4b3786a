import { lstat, mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { FetchReport } from "../../contract/fleet.ts";
import { FetchMeter } from "../../decide/weights/fetch-meter.ts";
import { pauseMs } from "../../decide/weights/file-transfer.ts";
import { type HeldFile, type HoldingRecord, layoutOf, stagingName } from "../../decide/weights/holding.ts";
import type { ListedFile, Listing } from "../../decide/weights/listings.ts";
import type { FetchedSource } from "../../decide/weights/source.ts";
import type { Clock } from "../../kernel/clock.ts";
import { syncFolder } from "../../kernel/durable-file.ts";
import { hasSystemCode } from "../../kernel/errors.ts";
import type { Random } from "../../kernel/random.ts";
import type { DiskLedger } from "./disk-ledger.ts";
import { FileFetch, type FileOutcome, type FileProgress } from "./fetch-file.ts";
import type { Holdings } from "./holdings.ts";
import type { Origins } from "./origins.ts";
import { bornOf, identityOf } from "./seen-file.ts";
import type { Turns } from "./turns.ts";
import type { WebClient } from "./web-client.ts";

export interface FetchPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly folder: string;
  readonly bootId: string;
  readonly holdings: Holdings;
  readonly origins: Origins;
  readonly web: WebClient;
  readonly ledger: DiskLedger;
  /** Of files, over all sources. */
  readonly connections: Turns;
}

/** As the catalog has it. */
export interface FetchWish {
  readonly source: FetchedSource;
  readonly sha256: string | null;
  /** Whether weights in pickle formats will do. */
  readonly allowPickle: boolean;
}

type Refusal = { readonly kind: "refused"; readonly why: string };
export type SourceOutcome =
  | { readonly kind: "complete" }
  | Refusal
  /** The source's revision is another one now: what was fetched so far is of no use. */
  | { readonly kind: "moved" };

/**
 * One try to bring a source into the cache: list it, promise the room, fetch its files beside each other, and give the folder
 * its name when all of them are there.
 *
 * Invariants:
 *   S1. The final name is given once, to a folder whose files are all checked and on the disk, after the record says so.
 *   S2. What one file needs is written into the record before the file is used.
 */
export class SourceFetch {
  readonly #ports: FetchPorts;
  readonly #source: FetchedSource;
  readonly #wish: FetchWish;
  readonly #meter = new FetchMeter();
  readonly #progress = new Map<string, FileProgress>();
  #record: HoldingRecord;
  #last: Promise<void> = Promise.resolve();
  #why: string | null = null;
  #isOtherBoot = false;

  /** `record` is on the disk already. */
  constructor(ports: FetchPorts, record: HoldingRecord, wish: FetchWish) {
    this.#ports = ports;
    this.#record = record;
    this.#source = wish.source;
    this.#wish = wish;
  }

  get #staging(): string {
    return join(this.#ports.folder, stagingName(this.#record));
  }

  /** Throws the disk's errors, and the signal's reason; what was fetched so far stays for the next try. */
  async run(signal: AbortSignal): Promise<SourceOutcome> {
    const { ledger } = this.#ports;
    try {
      const listing = await this.#list(signal);
      if (listing.kind === "refused") return listing;
      if (!(await this.#prepare(listing.revision, listing.files))) return { kind: "moved" };
      await ledger.require(this.#record.name, this.#need());
      const refusal = await this.#fetchAll(signal);
      if (refusal !== null) return refusal;
      await this.#settle();
      return { kind: "complete" };
    } finally {
      await this.#last.catch(() => {});
      ledger.lower(this.#record.name, null);
    }
  }

  report(): { readonly fetch: FetchReport; readonly mark: number; readonly why: string | null } {
    const files = [...this.#progress.values()];
    const bytes = files.reduce((sum, { have }) => sum + have, 0);
    const totals = files.map(({ total }) => total);
    const totalBytes =
      totals.includes(null) || files.length === 0 ? null : totals.reduce<number>((sum, total) => sum + (total ?? 0), 0);
    const now = this.#ports.clock.mono();
    this.#meter.note(bytes, now);
    const left = files.filter(({ have, total }) => have !== total);
    // Nothing is wrong as long as one of them goes on.
    const why =
      this.#why ?? (left.length > 0 && left.every((file) => file.why !== null) ? (left[0]?.why ?? null) : null);
    const mark = files.reduce((sum, file) => sum + file.mark, 0);
    return { fetch: { bytes, totalBytes, ...this.#meter.pace(bytes, totalBytes, now) }, mark, why };
  }

  async #list(signal: AbortSignal): Promise<Extract<Listing, { kind: "files" }> | Refusal> {
    const { origins, clock, random } = this.#ports;
    for (let fails = 0; ; fails += 1) {
      const listing = await origins.list(this.#source, this.#wish, signal);
      this.#why = listing.kind === "later" ? listing.why : null;
      if (listing.kind !== "later") return listing;
      await clock.sleep(pauseMs(fails, null, random.next()), signal);
    }
  }

  /** Brings the record to what the listing says. False when it holds files that the listing no longer has. */
  async #prepare(revision: string, files: readonly ListedFile[]): Promise<boolean> {
    const { base, entry, notes } = layoutOf(this.#source, revision);
    const known = new Map(this.#record.files.map((file) => [file.path, file]));
    const wanted = files.map(({ path, bytes, sha256 }) => {
      const file = known.get(`${base}${path}`);
      const isSame = file !== undefined && file.sha256 === sha256 && (bytes === null || file.bytes === bytes);
      return isSame ? file : newFile(`${base}${path}`, bytes, sha256, file);
    });
    const paths = new Set([...wanted, ...notes].map(({ path }) => path));
    if (this.#record.files.some(({ path }) => !paths.has(path))) return false;
    this.#isOtherBoot = this.#record.bootId !== this.#ports.bootId;
    await this.#keep({ revision: revision === "" ? null : revision, entry, files: wanted });
    await this.#makeFolder("");
    for (const { path } of wanted) await this.#makeParents(path);
    for (const file of wanted) this.#startProgress(file);
    return true;
  }

  #startProgress(file: HeldFile): void {
    const have = file.digest === null ? Math.min(file.synced, file.bytes ?? file.synced) : (file.bytes ?? 0);
    this.#progress.set(file.path, { have, total: file.bytes, mark: 0, why: null });
  }

  async #makeParents(path: string): Promise<void> {
    const segments = path.split("/").slice(0, -1);
    for (let count = 1; count <= segments.length; count += 1)
      await this.#makeFolder(segments.slice(0, count).join("/"));
  }

  /** O1: the folder's name has the nonce of the record, so one that is there was made for it. */
  async #makeFolder(path: string): Promise<void> {
    const known = this.#record.folders.find((folder) => folder.path === path);
    const place = path === "" ? this.#staging : join(this.#staging, path);
    try {
      await mkdir(place);
    } catch (error) {
      if (!hasSystemCode(error, "EEXIST")) throw error;
    }
    const seen = await lstat(place, { bigint: true });
    if (!seen.isDirectory()) throw new Error(`${place} is not the folder that this node made: move it away`);
    const { dev, ino } = identityOf(seen);
    if (known?.dev === dev && known.ino === ino) return;
    const others = this.#record.folders.filter((folder) => folder.path !== path);
    await this.#keep({ folders: [...others, { path, dev, ino }] });
  }

  #need(): { readonly bytes: number; readonly files: number } {
    let [bytes, files] = [0, 0];
    for (const { have, total } of this.#progress.values()) {
      if (have === total) continue;
      bytes += Math.max(0, (total ?? 0) - have);
      files += 1;
    }
    return { bytes, files };
  }

  /** The first that can't go on ends the others. */
  async #fetchAll(parent: AbortSignal): Promise<Refusal | null> {
    const enough = new AbortController();
    const signal = AbortSignal.any([parent, enough.signal]);
    let first: { readonly refusal: Refusal } | { readonly error: unknown } | null = null;
    const fetches = [...this.#progress.keys()].map(async (path) => {
      const end = await this.#fetchOne(path, signal).then(
        (outcome) => (outcome?.kind === "refused" ? { refusal: outcome } : null),
        (error: unknown) => ({ error }),
      );
      first ??= end;
      if (end !== null) enough.abort(new Error("another file of the source can't be had"));
    });
    await Promise.all(fetches);
    parent.throwIfAborted();
    // The compiler does not see what the callbacks have set.
    const cause = first as { readonly refusal: Refusal } | { readonly error: unknown } | null;
    if (cause !== null && "error" in cause) throw cause.error;
    return cause?.refusal ?? null;
  }

  async #fetchOne(path: string, signal: AbortSignal): Promise<FileOutcome | null> {
    const { clock, random, web, origins, ledger, connections } = this.#ports;
    const file = this.#record.files.find((known) => known.path === path);
    const progress = this.#progress.get(path);
    if (file === undefined || progress === undefined || file.digest !== null) return null;
    using _turn = await connections.take(signal);
    const { base } = layoutOf(this.#source, this.#record.revision);
    const fetch = new FileFetch(
      {
        clock,
        random,
        web,
        request: origins.request(this.#source, this.#record.revision ?? "", { path: path.slice(base.length) }),
        path: join(this.#staging, path),
        isOtherBoot: this.#isOtherBoot,
        progress,
        save: (next) => this.#keepFile(next),
        reserve: async (total) => {
          progress.total = total;
          await ledger.require(this.#record.name, this.#need());
        },
      },
      file,
    );
    return fetch.run(signal);
  }

  /** S1. */
  async #settle(): Promise<void> {
    const { folder } = this.#ports;
    for (const { path, text } of layoutOf(this.#source, this.#record.revision).notes) await this.#makeNote(path, text);
    for (const { path } of this.#record.folders) await syncFolder(join(this.#staging, path));
    await this.#keep({ status: "complete" });
    await rename(this.#staging, join(folder, this.#record.name));
    await syncFolder(folder);
  }

  async #makeNote(path: string, text: string): Promise<void> {
    await this.#makeParents(path);
    const place = join(this.#staging, path);
    await writeFile(place, text, { flush: true });
    const seen = await lstat(place, { bigint: true });
    const bytes = Buffer.byteLength(text);
    const note = { ...newFile(path, bytes, null), synced: bytes, ...identityOf(seen), bornNs: bornOf(seen) };
    await this.#keepFile({ ...note, digest: "", mtimeNs: String(seen.mtimeNs) });
  }

  #keepFile(next: HeldFile): Promise<void> {
    const { name } = this.#record;
    this.#ports.ledger.lower(name, this.#need());
    const others = this.#record.files.filter(({ path }) => path !== next.path);
    return this.#keep({ files: [...others, next], bootId: this.#ports.bootId });
  }

  /** One write after the other: files of one source end at the same time. */
  #keep(over: Partial<HoldingRecord>): Promise<void> {
    this.#record = { ...this.#record, ...over };
    const record = this.#record;
    const next = this.#last.then(
      () => this.#ports.holdings.keep(record),
      () => this.#ports.holdings.keep(record),
    );
    this.#last = next;
    next.catch(() => {}); // Told to whoever waits for it.
    return next;
  }
}

/** `before`: what the record has of a file of that path, whose bytes are of no use. */
const newFile = (path: string, bytes: number | null, sha256: string | null, before?: HeldFile): HeldFile => ({
  path,
  bytes,
  sha256,
  etag: null,
  synced: 0,
  dev: before?.dev ?? null,
  ino: before?.ino ?? null,
  bornNs: before?.bornNs ?? null,
  digest: null,
  told: null,
  mtimeNs: null,
});
