import { randomBytes } from "node:crypto";
import { rename } from "node:fs/promises";
import { join } from "node:path";
import type { CacheLeftover, FetchReport, HeldWeights, RemovedWeights } from "../../contract/fleet.ts";
import type { WeightsSettings } from "../../contract/resolve-agent.ts";
import { weightsName } from "../../contract/resolve-catalog.ts";
import { isPickle, whyNotFile } from "../../decide/weights/formats.ts";
import {
  bytesOf,
  damagedFiles,
  damagedName,
  damagedRecord,
  type HoldingRecord,
  isDamagedName,
  judgeHeldFile,
  judgeRemoval,
  newHolding,
  type SeenFile,
  stagingName,
} from "../../decide/weights/holding.ts";
import type { Clock } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Resolve } from "../../kernel/judged-lookup.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import { makeFolder } from "../../kernel/make-folder.ts";
import { DiskLedger, diskTroubleOf } from "./disk-ledger.ts";
import { digestOf } from "./fetch-file.ts";
import { type FetchPorts, type FetchWish, SourceFetch, type SourceOutcome } from "./fetch-source.ts";
import { Holdings } from "./holdings.ts";
import { Origins } from "./origins.ts";
import { listLeftovers } from "./list-leftovers.ts";
import { makeTrash, type Removal, removeOwned } from "./remove-owned.ts";
import { bornOf, identityOf, lstatIfThere } from "./seen-file.ts";
import { Turns } from "./turns.ts";
import { WebClient } from "./web-client.ts";

export interface WeightsPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly settings: WeightsSettings;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The cache; absolute. */
  readonly folder: string;
  /** Of the records. */
  readonly stateFolder: string;
  readonly bootId: string;
  readonly ca: string | undefined;
  readonly resolve?: Resolve;
  /** Something ended, or was begun: whoever waits for weights is to look. */
  readonly onChange: () => void;
}

/** What a start asks for. */
export interface WeightsWish extends FetchWish {
  /** The replica. */
  readonly holder: string;
  /** The source as the catalog has it. */
  readonly text: string;
}

export type WeightsView =
  | { readonly kind: "present"; readonly path: string }
  | {
      readonly kind: "fetching";
      readonly fetch: FetchReport | null;
      /** Rises with everything that is progress. */
      readonly mark: number;
      /** Why nothing comes now; null while something does. */
      readonly why: string | null;
      /** It waits for others, which are making progress. */
      readonly isQueued: boolean;
    }
  | { readonly kind: "missing"; readonly why: string };

const RETRY_MS = 5_000;
const MOVES_MAX = 3;
const LEFTOVERS_MS = 30_000;

type End = { readonly path: string } | { readonly missing: string };

interface Entry {
  readonly wish: WeightsWish;
  /** Replicas for which it was looked at, and which are told how that ended. */
  readonly askers: Set<string>;
  readonly stop: AbortController;
  state: "queued" | "working" | End;
  fetch: SourceFetch | null;
  /** Bytes read to check what is there. */
  checked: number;
  why: string | null;
  done: Promise<void>;
}

/**
 * The weights of this node: what its cache holds, who holds on to it, and what is being fetched.
 *
 * Invariants:
 *   C1. One source is fetched once, however many want it; it is given out only as a whole that was checked, and is looked at again for
 *       each replica that comes later: others may have held it for weeks, and somebody has written to it since.
 *   C2. A source is nobody's that no replica holds on to: then its download ends, and it may be removed.
 *   C3. Nothing is fetched over something that this node did not put there.
 *   C4. A trouble with one source is no trouble of the others, nor of the agent.
 */
export class WeightsCache {
  readonly #ports: WeightsPorts;
  readonly #fetchPorts: FetchPorts;
  readonly #holdings: Holdings;
  /** What was set aside. */
  readonly #damaged: Holdings;
  readonly #turns: Turns;
  readonly #entries = new Map<string, Entry>();
  readonly #holders = new Map<string, Set<string>>();
  /** What is still being done about a name that nobody holds any more. */
  readonly #ending = new Map<string, Promise<void>>();
  /** Counts what changes the cache. */
  #changes = 0;
  #leftovers: { readonly at: number; readonly of: number; readonly list: readonly CacheLeftover[] } | null = null;

  /** Throws CONFIG_INVALID on a record that can't be read. A cache that can't be written is told by whoever needs it. */
  static async open(ports: WeightsPorts): Promise<WeightsCache> {
    // In a folder of its own: a program that does not know of it reads all that lies beside it.
    const damaged = await Holdings.load(join(ports.stateFolder, "damaged"), damagedRecord);
    const cache = new WeightsCache(ports, await Holdings.load(ports.stateFolder), damaged);
    await cache
      .#takeOver()
      .catch((error: unknown) => ports.log.warn("weights.open_failed", { message: messageOf(error) }));
    return cache;
  }

  private constructor(ports: WeightsPorts, holdings: Holdings, damaged: Holdings) {
    const { clock, random, settings, env, folder, bootId, ca, resolve } = ports;
    const { redirectTo, reserve, connections, parallel } = settings;
    const web = new WebClient({ clock, ca, redirectTo, ...(resolve === undefined ? {} : { resolve }) });
    this.#ports = ports;
    this.#holdings = holdings;
    this.#damaged = damaged;
    this.#turns = new Turns(parallel);
    this.#fetchPorts = {
      clock,
      random,
      folder,
      bootId,
      holdings,
      web,
      origins: new Origins({ clock, web, settings, env }),
      ledger: new DiskLedger(folder, reserve),
      connections: new Turns(connections),
    };
  }

  /** What an agent that ended in the middle left: a name that was about to be given is given. */
  async #takeOver(): Promise<void> {
    const { folder, log } = this.#ports;
    await makeFolder(folder, 0o777);
    await makeTrash(folder);
    for (const record of this.#holdings.all) {
      if (record.status !== "complete" || (await isThere(join(folder, record.name)))) continue;
      const staging = join(folder, stagingName(record));
      if (await isThere(staging)) await rename(staging, join(folder, record.name));
      else {
        log.warn("weights.vanished", { name: record.name, message: "they are no longer in the cache" });
        await this.#holdings.drop(record.name);
      }
    }
    for (const { name } of this.#damaged.all) if (!(await isThere(join(folder, name)))) await this.#damaged.drop(name);
  }

  /** The replica needs them there until it lets go; nothing is fetched for that. */
  hold(holder: string, name: string): void {
    const holders = this.#holders.get(name) ?? new Set();
    this.#holders.set(name, holders.add(holder));
  }

  /** Begins what is needed; to be asked again until it is not `fetching`. */
  want(wish: WeightsWish): WeightsView {
    const name = weightsName(wish.text, wish.allowPickle);
    this.hold(wish.holder, name);
    const there = this.#entries.get(name);
    if (there !== undefined && wish.sha256 !== null && there.wish.sha256 !== wish.sha256)
      return { kind: "missing", why: "another replica on this node uses the source with another sha256, or with none" };
    const isAnswered = there !== undefined && (typeof there.state === "string" || there.askers.has(wish.holder));
    const entry = isAnswered ? there : this.#begin(name, wish, there?.askers ?? []);
    entry.askers.add(wish.holder);
    return viewOf(entry);
  }

  #begin(name: string, wish: WeightsWish, askers: Iterable<string>): Entry {
    const entry: Entry = {
      wish,
      askers: new Set(askers),
      stop: new AbortController(),
      state: "queued",
      fetch: null,
      checked: 0,
      why: null,
      done: Promise.resolve(),
    };
    this.#entries.set(name, entry);
    entry.done = this.#work(name, entry);
    return entry;
  }

  /** C2. */
  release(holder: string): void {
    for (const [name, holders] of this.#holders) {
      if (!holders.delete(holder)) continue;
      const entry = this.#entries.get(name);
      entry?.askers.delete(holder);
      if (holders.size > 0) continue;
      this.#holders.delete(name);
      this.#entries.delete(name);
      if (entry === undefined) continue;
      entry.stop.abort(new Error("no replica needs it any more"));
      this.#await(name, entry.done);
    }
  }

  /** Whatever comes next for the name waits for it. */
  #await(name: string, work: Promise<void>): void {
    const before = this.#ending.get(name) ?? Promise.resolve();
    const all = before.then(() => work);
    this.#ending.set(name, all);
    void all.finally(() => {
      if (this.#ending.get(name) === all) this.#ending.delete(name);
    });
  }

  /** What is there whole. */
  get held(): readonly HeldWeights[] {
    const whole = this.#holdings.all.filter(({ status }) => status === "complete");
    return whole.map((record) => ({
      name: record.name,
      bytes: bytesOf(record),
      inUse: this.#holders.has(record.name),
    }));
  }

  /** What else lies in the cache, as it was at most LEFTOVERS_MS ago. */
  async leftovers(): Promise<readonly CacheLeftover[]> {
    const now = this.#ports.clock.mono();
    if (this.#leftovers === null || now - this.#leftovers.at > LEFTOVERS_MS || this.#leftovers.of !== this.#changes) {
      const of = this.#changes;
      const list = await listLeftovers(this.#ports.folder, this.#holdings.all, this.#damaged.all).catch(() => []);
      this.#leftovers = { at: now, of, list };
    }
    return this.#leftovers.list;
  }

  /** Removes what the control plane asks for, as far as the node finds it its own and in no use. Never rejects. */
  async collect(names: readonly string[]): Promise<readonly RemovedWeights[]> {
    const results: RemovedWeights[] = [];
    for (const name of new Set(names)) results.push(await this.#collectOne(name));
    this.#changes += 1;
    return results;
  }

  async #collectOne(name: string): Promise<RemovedWeights> {
    const shown = name.slice(0, 256);
    await this.#ending.get(name);
    const verdict = judgeRemoval(name, this.#holdings.get(name) ?? this.#damaged.get(name), {
      heldBy: [...(this.#holders.get(name) ?? [])],
      fetching: this.#entries.has(name),
    });
    const log = (result: RemovedWeights): RemovedWeights => {
      this.#ports.log.info("weights.collect", { ...result });
      return result;
    };
    if (verdict.kind === "refused") return log({ name: shown, outcome: "refused", freedBytes: 0, why: verdict.why });
    const { promise, resolve } = Promise.withResolvers<void>();
    // A start that wants them meanwhile waits until they are gone, and fetches them again.
    this.#await(name, promise);
    try {
      const { freedBytes, kept } = await this.#remove(verdict.record);
      const why = kept.length === 0 ? null : kept.slice(0, 5).join("; ").slice(0, 1_000);
      return log({ name, outcome: kept.length === 0 ? "removed" : "kept", freedBytes, why });
    } catch (error) {
      return log({ name, outcome: "failed", freedBytes: 0, why: messageOf(error).slice(0, 1_000) });
    } finally {
      resolve();
    }
  }

  /** The record goes with the last of its files; what is left then is not the node's own. */
  async #remove(record: HoldingRecord): Promise<Removal> {
    const top = record.status === "complete" ? record.name : stagingName(record);
    const removal = await removeOwned(this.#ports.folder, top, record);
    if (removal.left === 0) await (isDamagedName(record.name) ? this.#damaged : this.#holdings).drop(record.name);
    return removal;
  }

  /** Ends what is under way; what was fetched so far stays. */
  async close(): Promise<void> {
    const entries = [...this.#entries.values()];
    for (const { stop } of entries) stop.abort(new Error("the agent stops"));
    await Promise.allSettled([...entries.map(({ done }) => done), ...this.#ending.values()]);
  }

  /** Never rejects. */
  async #work(name: string, entry: Entry): Promise<void> {
    const { clock, log } = this.#ports;
    const { signal } = entry.stop;
    await this.#ending.get(name);
    while (!signal.aborted) {
      try {
        const end = (await this.#checkHeld(name, entry)) ?? (await this.#fetchInTurn(name, entry));
        entry.state = end;
        entry.fetch = null;
        const missing = "missing" in end ? end.missing : undefined;
        log[missing === undefined ? "info" : "warn"]("weights.ended", {
          name,
          source: shownSource(entry.wish),
          missing,
        });
        this.#changes += 1;
        this.#ports.onChange();
        return;
      } catch (error) {
        if (signal.aborted) return;
        entry.state = "working";
        entry.fetch = null;
        entry.why = diskTroubleOf(error)?.message ?? messageOf(error);
        log.warn("weights.trouble", { name, source: shownSource(entry.wish), message: entry.why });
        await this.#clean(name).catch((failure: unknown) =>
          log.warn("weights.clean_failed", { name, message: messageOf(failure) }),
        );
        await clock.sleep(RETRY_MS, signal).catch(() => {});
      }
    }
  }

  /** Null when they have to be fetched. */
  async #checkHeld(name: string, entry: Entry): Promise<End | null> {
    const record = this.#holdings.get(name);
    if (record?.status !== "complete") return null;
    const unwelcome = entry.wish.allowPickle ? undefined : record.files.find(({ path }) => isPickle(path));
    if (unwelcome !== undefined) return { missing: whyNotFile(unwelcome.path, false) ?? "" };
    const wrong = (await this.#findDamage(record, entry)) ?? otherDigest(record, entry.wish.sha256);
    if (wrong === null) return { path: this.#pathOf(record) };
    this.#ports.log.error("weights.damaged", {
      name,
      source: shownSource(entry.wish),
      message: `${wrong}; they are fetched anew`,
    });
    await this.#setAside(record);
    return null;
  }

  async #findDamage(record: HoldingRecord, entry: Entry): Promise<string | null> {
    const root = join(this.#ports.folder, record.name);
    for (const file of record.files) {
      const verdict = judgeHeldFile(file, await seenFile(join(root, file.path)));
      if (verdict === "same") continue;
      if (verdict !== "look") return verdict.wrong;
      const digest = await digestOf(join(root, file.path), (bytes) => (entry.checked += bytes), entry.stop.signal);
      if (file.digest !== "" && digest !== file.digest) return `${file.path} has other content than was fetched`;
    }
    return null;
  }

  async #fetchInTurn(name: string, entry: Entry): Promise<End> {
    entry.state = entry.why === null ? "queued" : "working";
    using _turn = await this.#turns.take(entry.stop.signal);
    entry.state = "working";
    for (let moves = 0; moves < MOVES_MAX; moves += 1) {
      const outcome = await this.#fetch(name, entry);
      if (outcome.kind === "refused") return { missing: outcome.why };
      const record = this.#holdings.get(name);
      if (outcome.kind === "complete" && record !== undefined) return { path: this.#pathOf(record) };
      await this.#clean(name);
    }
    return { missing: "the source changes while it is fetched" };
  }

  async #fetch(name: string, entry: Entry): Promise<SourceOutcome> {
    const { folder, bootId, log } = this.#ports;
    await makeFolder(folder, 0o777);
    let record = this.#holdings.get(name);
    if (record === undefined) {
      // C3.
      if (await isThere(join(folder, name)))
        return { kind: "refused", why: `${join(folder, name)} was not put there by this node: move it away` };
      record = newHolding(name, entry.wish.text, randomBytes(8).toString("hex"), bootId);
      await this.#holdings.keep(record);
    }
    log.info("weights.fetch", { name, source: shownSource(entry.wish), have: bytesOf(record) });
    entry.fetch = new SourceFetch(this.#fetchPorts, record, entry.wish);
    return entry.fetch.run(entry.stop.signal);
  }

  #pathOf({ name, entry }: HoldingRecord): string {
    return entry === "" ? join(this.#ports.folder, name) : join(this.#ports.folder, name, entry);
  }

  /** What a download has left goes: the room is needed, by the next try or by others. */
  async #clean(name: string): Promise<void> {
    const record = this.#holdings.get(name);
    if (record?.status !== "fetching") return;
    await this.#remove(record);
  }

  /**
   * What is still as it was goes, what is not is set aside: as the node's own where it made the file, for an operator to look at and to
   * have removed. The record of that is on the disk before the folder gets its name.
   */
  async #setAside(record: HoldingRecord): Promise<void> {
    const { folder } = this.#ports;
    await removeOwned(folder, record.name, record);
    const place = join(folder, record.name);
    if (await isThere(place)) {
      const seen = await Promise.all(record.files.map((file) => seenFile(join(place, file.path))));
      const files = damagedFiles(record.files, seen);
      const name = damagedName(record);
      if (files.length > 0) await this.#damaged.keep({ ...record, name, files: [...files] });
      await rename(place, join(folder, name));
    }
    await this.#holdings.drop(record.name);
  }
}

function viewOf({ state, fetch, why, checked }: Entry): WeightsView {
  if (typeof state === "object")
    return "path" in state ? { kind: "present", path: state.path } : { kind: "missing", why: state.missing };
  const told = fetch?.report();
  return {
    kind: "fetching",
    fetch: told?.fetch ?? null,
    mark: (told?.mark ?? 0) + checked,
    why: told === undefined ? why : told.why,
    isQueued: state === "queued",
  };
}

/** A query may hold a signature. */
const shownSource = ({ text }: WeightsWish): string => text.replace(/[?#].*$/, "");

function otherDigest({ files }: HoldingRecord, sha256: string | null): string | null {
  const fetched = files.filter(({ digest }) => digest !== "");
  return sha256 === null || (fetched.length === 1 && fetched[0]?.digest === sha256)
    ? null
    : `its sha256 is not ${sha256}`;
}

const isThere = async (path: string): Promise<boolean> => (await lstatIfThere(path)) !== null;

async function seenFile(path: string): Promise<SeenFile | null> {
  const seen = await lstatIfThere(path);
  if (seen === null || !seen.isFile()) return null;
  return { ...identityOf(seen), bornNs: bornOf(seen), bytes: Number(seen.size), mtimeNs: String(seen.mtimeNs) };
}
