import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { z } from "zod";
import { holdingRecord, type HoldingRecord } from "../../decide/weights/holding.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import { readIfThere, removeDurably, writeDurably } from "../../kernel/durable-file.ts";
import { makeFolder } from "../../kernel/make-folder.ts";

/**
 * The records of what this agent has put into its cache, one file each, in a folder that only the owner can read: a source may
 * hold a signed URL. One whose record is lost belongs to nobody: it is neither used nor removed.
 */
export class Holdings {
  readonly #folder: string;
  readonly #records: Map<string, HoldingRecord>;

  private constructor(folder: string, records: readonly HoldingRecord[]) {
    this.#folder = folder;
    this.#records = new Map(records.map((record) => [record.name, record]));
  }

  /** Of the form that the records have. Throws CONFIG_INVALID on one that can't be read. */
  static async load(folder: string, form: z.ZodType<HoldingRecord> = holdingRecord): Promise<Holdings> {
    await makeFolder(folder);
    const records: HoldingRecord[] = [];
    for (const file of await readdir(folder)) {
      if (!file.endsWith(".json")) continue;
      const path = join(folder, file);
      const record = readRecord((await readIfThere(path)) ?? "", form);
      if (record === null || `${record.name}.json` !== file)
        throw new YardmasterError("CONFIG_INVALID", `${path} can't be read; move it away to start without it`);
      records.push(record);
    }
    return new Holdings(folder, records);
  }

  get all(): readonly HoldingRecord[] {
    return [...this.#records.values()];
  }

  get(name: string): HoldingRecord | undefined {
    return this.#records.get(name);
  }

  /** On the disk when it resolves. Writers of one record wait for each other themselves. */
  async keep(record: HoldingRecord): Promise<void> {
    await writeDurably(this.#path(record.name), JSON.stringify(record));
    this.#records.set(record.name, record);
  }

  async drop(name: string): Promise<void> {
    this.#records.delete(name);
    await removeDurably(this.#path(name));
  }

  #path(name: string): string {
    return join(this.#folder, `${name}.json`);
  }
}

function readRecord(text: string, form: z.ZodType<HoldingRecord>): HoldingRecord | null {
  try {
    return form.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
