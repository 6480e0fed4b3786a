import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import { makeFolderSync } from "../../kernel/make-folder.ts";

const knownFile = z.strictObject({
  stores: z.array(z.strictObject({ epoch: z.string(), kind: z.enum(["local", "redis"]) })),
});
type KnownStore = z.output<typeof knownFile>["stores"][number];

const STORES_MAX = 100;
const FILE = "job-stores.json";
const JOB_ID = /^job_([0-9a-f]{8})_[A-Za-z0-9_-]{22}$/;

/** Of an id that the store does not know. */
export type MissingJob = "unknown" | "lost" | "elsewhere";

/**
 * The lives of job stores that this gateway has seen, kept in the data folder. Each job's id names the life of the store that it
 * was given in, so a store that was emptied, or is not the one in use, is told from an id that nobody ever gave.
 */
export class KnownStores {
  readonly #dataDir: string;
  #stores: readonly KnownStore[];
  #unsaved = false;

  constructor(dataDir: string) {
    this.#dataDir = dataDir;
    this.#stores = read(join(dataDir, FILE));
  }

  /** Known from then on. While the data folder can't be written, by this process alone: a job that was accepted stays accepted. */
  note(store: Pick<JobStore, "epoch" | "kind">): void {
    const { epoch, kind } = store;
    if (epoch === undefined) return;
    const isNew = !this.#stores.some((known) => known.epoch === epoch);
    if (isNew) this.#stores = [...this.#stores, { epoch, kind }].slice(-STORES_MAX);
    if (isNew || this.#unsaved) this.#unsaved = !this.#save();
  }

  #save(): boolean {
    const path = join(this.#dataDir, FILE);
    try {
      makeFolderSync(this.#dataDir);
      writeFileSync(`${path}.new`, `${JSON.stringify({ stores: this.#stores })}\n`, { mode: 0o600 });
      renameSync(`${path}.new`, path);
      return true;
    } catch {
      return false;
    }
  }

  /** Why the store in use does not have it. */
  explain(id: string, store: Pick<JobStore, "epoch" | "kind">): MissingJob {
    const epoch = JOB_ID.exec(id)?.[1];
    const known = this.#stores.find((each) => each.epoch === epoch);
    if (known === undefined || known.epoch === store.epoch) return "unknown";
    return known.kind === store.kind ? "lost" : "elsewhere";
  }
}

function read(path: string): readonly KnownStore[] {
  try {
    return knownFile.parse(JSON.parse(readFileSync(path, "utf8"))).stores;
  } catch {
    return []; // None yet, or nothing that can be read: ids of earlier lives are then unknown.
  }
}
