import { existsSync } from "node:fs";
import { join } from "node:path";
import { randomBytes } from "node:crypto";
import type { BatchProblem } from "../../contract/batch.ts";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { FileStore } from "../../coord/files/file-store.ts";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import type { RedisLink } from "../../coord/redis/redis-link.ts";
import { chooseBatches } from "../../decide/batches/step-batch.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { untilAborted } from "../../kernel/deadline.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { BatchMetrics, FileCounts } from "../metrics/batch-metrics.ts";
import { BatchDriver } from "./batch-driver.ts";
import { FileShelf } from "./file-shelf.ts";
import { LineReader } from "./line-reader.ts";

export interface BatchesPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: BatchMetrics;
  readonly config: () => GatewayConfig;
  readonly link: RedisLink | null;
  /** A way of its own for bytes. */
  readonly anotherLink: (link: RedisLink) => Promise<RedisLink>;
  readonly jobs: { store(): Promise<JobStore>; cancel(id: string, by: string): Promise<void> };
  readonly judgeModel: (keyId: string, model: string) => Omit<BatchProblem, "line"> | null | undefined;
}

/** While a batch is open. Changes of its jobs cut the wait short. */
const LOOK_MS = 1_000;
/** While none is: others' batches, and files whose time is over. */
const IDLE_LOOK_MS = 5_000;
const SWEEP_MS = 30_000;
/** Changes of jobs come one for each line. */
const SETTLE_DOWN_MS = 200;
const LISTED_MAX = 500;
const DRIVEN_MAX = 16;

/**
 * Files and batches of one gateway. With `coordination: local` the database is opened at the start where there is one, else with the first
 * upload: who uses neither has neither file nor thread.
 *
 * Invariants:
 *   O1. One drive of a batch at a time in this process, and DRIVEN_MAX in all.
 *   O2. After `stop` nothing new is begun, and what is driven is left for others at its next step.
 */
export class Batches {
  readonly #ports: BatchesPorts;
  readonly #reader: LineReader;
  readonly #token = randomBytes(12).toString("base64url");
  readonly #driving = new Map<string, Promise<void>>();
  readonly #again = new Set<string>();
  /** The batch of each job that one waits for. */
  readonly #waitsFor = new Map<string, string>();
  readonly #soon = new Set<string>();
  /** Batches that this process has the lease of, as far as it knows. */
  readonly #held = new Set<string>();
  #shelf: FileShelf | null = null;
  /** There may be files in a store that is not open. */
  #owed = false;
  #opening: Promise<FileShelf> | null = null;
  #driver: BatchDriver | null = null;
  #listening: Disposable | null = null;
  #timer: Timer | undefined;
  #soonTimer: Timer | undefined;
  #looking: Promise<void> | null = null;
  #sweptAt = -SWEEP_MS;
  #counts: FileCounts | undefined;
  #stopped = false;
  #away = false;

  constructor(ports: BatchesPorts) {
    this.#ports = ports;
    this.#reader = new LineReader(ports.clock);
    ports.metrics.collect(() => this.#counts);
  }

  /** Opens what somebody may have work in. A file that can't be opened keeps nobody from what needs none: it is tried again and again. */
  async begin(): Promise<void> {
    this.#owed = this.#ports.link !== null || existsSync(this.#path);
    if (this.#owed) await this.#opened().catch(() => this.#lookIn(0)); // The look tells why.
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  /** Null: nobody has used it yet. Rejects while there may be something in a store that is not open. */
  async used(): Promise<FileShelf | null> {
    return this.#shelf ?? (this.#owed ? this.shelf() : null);
  }

  async shelf(): Promise<FileShelf> {
    if (this.#stopped) throw new YardmasterError("DRAINING", "the gateway is stopping");
    return this.#opened();
  }

  #opened(): Promise<FileShelf> {
    this.#opening ??= this.#openStore().then(
      (store) => {
        this.#shelf = new FileShelf(store);
        this.#lookIn(0);
        return this.#shelf;
      },
      (error: unknown) => {
        this.#opening = null;
        throw error;
      },
    );
    return this.#opening;
  }

  /** Somebody has made or changed a batch. */
  driveSoon(): void {
    this.#lookIn(0);
  }

  async stop(hurry: AbortSignal): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    this.#soonTimer?.cancel();
    this.#listening?.[Symbol.dispose]();
    await Promise.race([this.#leave(), untilAborted(hurry)]);
  }

  /** What is driven ends its step; and what waited for its jobs is given up too, so that nobody has to wait for a lease to run out. */
  async #leave(): Promise<void> {
    await Promise.all([this.#looking, ...this.#driving.values()]);
    for (const id of this.#held) await this.#driver?.drive(id).catch(() => {}); // The lease runs out.
  }

  async close(): Promise<void> {
    await this.#reader.close();
    await this.#shelf?.store.close();
  }

  get #path(): string {
    return join(this.#ports.config().dataDir, "files.db");
  }

  async #openStore(): Promise<FileStore> {
    const { clock, link, config, anotherLink } = this.#ports;
    const { filesMax: docsMax, bytesMax, keyBytesMax, openMax: keyOpenMax } = config().batches;
    const limits = { docsMax, bytesMax, keyBytesMax, keyOpenMax };
    if (link === null) {
      const { openLocalFileStore } = await import("../../coord/local/local-file-store.ts");
      return openLocalFileStore({ path: this.#path, limits, clock });
    }
    const { RedisFileStore } = await import("../../coord/redis/redis-file-store.ts");
    return new RedisFileStore({ link, bytesLink: await anotherLink(link), limits });
  }

  #lookIn(ms: number): void {
    if (this.#stopped) return;
    this.#timer?.cancel();
    this.#timer = this.#ports.clock.after(ms, () => {
      if (this.#looking !== null) return this.#lookIn(LOOK_MS / 4);
      this.#looking = this.#look().finally(() => {
        this.#looking = null;
      });
    });
  }

  async #look(): Promise<void> {
    const { clock, log } = this.#ports;
    let open = 0;
    try {
      const { store } = await this.shelf();
      if (clock.mono() - this.#sweptAt >= SWEEP_MS) {
        this.#sweptAt = clock.mono();
        await store.sweep();
      }
      const batches = await store.open(LISTED_MAX);
      open = batches.length;
      this.#counts = { ...(await store.totals()), open };
      for (const { id } of chooseBatches(batches, DRIVEN_MAX)) await this.#drive(id);
      if (this.#away) log.info("batches.store", { state: "back" });
      this.#away = false;
    } catch (error) {
      this.#counts = undefined;
      if (!this.#away && !this.#stopped) log.warn("batches.store", { state: "away", message: messageOf(error) });
      this.#away = true;
    }
    this.#lookIn(open > 0 || this.#away ? LOOK_MS : IDLE_LOOK_MS);
  }

  async #drive(id: string): Promise<void> {
    if (this.#driving.has(id)) return void this.#again.add(id);
    if (this.#stopped || this.#driving.size >= DRIVEN_MAX) return;
    const driver = this.#driver ?? (await this.#makeDriver());
    if (this.#driving.has(id)) return;
    const driven = this.#driveOnce(driver, id).finally(() => {
      this.#driving.delete(id);
      if (this.#again.delete(id)) this.#driveAfterChange(id);
    });
    this.#driving.set(id, driven);
  }

  async #driveOnce(driver: BatchDriver, id: string): Promise<void> {
    const { log } = this.#ports;
    try {
      const end = await driver.drive(id);
      for (const [job, batch] of this.#waitsFor) if (batch === id) this.#waitsFor.delete(job);
      if (end.kind === "waits") this.#held.add(id);
      else this.#held.delete(id);
      if (end.kind === "waits") for (const job of end.jobs) this.#waitsFor.set(job, id);
    } catch (error) {
      // Whatever was not written down is done again.
      log.warn("batch.drive", { batch: id, message: messageOf(error) });
    }
  }

  async #makeDriver(): Promise<BatchDriver> {
    const { config, jobs, judgeModel, log, metrics } = this.#ports;
    const shelf = await this.shelf();
    const store = await jobs.store();
    this.#listening ??= store.onChange((job) => {
      const batch = job === null ? undefined : this.#waitsFor.get(job);
      if (batch !== undefined) this.#driveAfterChange(batch);
    });
    return (this.#driver ??= new BatchDriver({
      shelf,
      jobs: store,
      reader: this.#reader,
      token: this.#token,
      alone: shelf.store.kind === "local",
      leaseMs: () => config().jobs.claimMs,
      attemptsMax: () => config().jobs.attemptsMax,
      linesMax: () => config().batches.linesMax,
      lineBytesMax: () => config().maxBodyBytes,
      judgeModel: (batch, model) => judgeModel(batch.keyId, model),
      cancelJob: (id, by) => jobs.cancel(id, by),
      onOver: (batch) => {
        metrics.ended(batch);
        const { id, keyId, state, total } = batch;
        log.info("batch.over", {
          batch: id,
          key: keyId,
          state,
          lines: total,
          took_ms: (batch.endedAt ?? 0) - batch.createdAt,
        });
      },
      stopped: () => this.#stopped,
    }));
  }

  #driveAfterChange(id: string): void {
    if (this.#stopped) return;
    this.#soon.add(id);
    this.#soonTimer ??= this.#ports.clock.after(SETTLE_DOWN_MS, () => {
      this.#soonTimer = undefined;
      const ids = [...this.#soon];
      this.#soon.clear();
      for (const each of ids) void this.#drive(each).catch(() => {}); // The next look drives it.
    });
  }
}
