import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** Names that could be taken for something of ours. */
const NAMES = ["model.gguf", "0123456789abcdef-1.log", "notes"];

/** The working folder of one engine: made for it, and gone with it. */
const OF_AN_ENGINE = /\/engines\/[^/]+/;

/** Files of somebody else in every folder below one, among ours. */
export class StrangerFiles {
  readonly #files: ReadonlyMap<string, string>;

  static async lay(folder: string): Promise<StrangerFiles> {
    const files = new Map<string, string>();
    for (const into of await foldersBelow(folder)) {
      for (const name of NAMES) files.set(join(into, name), `not yours: ${into}`);
    }
    for (const [path, text] of files) await writeFile(path, text, { flag: "wx" });
    return new StrangerFiles(files);
  }

  private constructor(files: ReadonlyMap<string, string>) {
    this.#files = files;
  }

  get count(): number {
    return this.#files.size;
  }

  /** Paths of those that are not there any more, or hold something else. */
  async changed(): Promise<readonly string[]> {
    const found = await Promise.all(
      [...this.#files].map(async ([path, text]) => ((await readOrNull(path)) === text ? [] : [path])),
    );
    return found.flat();
  }
}

async function foldersBelow(folder: string): Promise<readonly string[]> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true });
  const folders = entries.filter((entry) => entry.isDirectory()).map((entry) => join(entry.parentPath, entry.name));
  return folders.filter((path) => !OF_AN_ENGINE.test(path));
}

const readOrNull = (path: string): Promise<string | null> => readFile(path, "utf8").catch(() => null);
