import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { extname, join, relative, sep } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";

export interface Asset {
  readonly type: string;
  readonly etag: string;
  /** Its name says what it holds: it never changes. */
  readonly isImmutable: boolean;
  readonly plain: Buffer;
  readonly gzip: Buffer | null;
  readonly brotli: Buffer | null;
}

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json",
  ".webmanifest": "application/manifest+json",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".ico": "image/x-icon",
  ".woff2": "font/woff2",
  ".txt": "text/plain; charset=utf-8",
};
const COMPRESSED: ReadonlySet<string> = new Set([".html", ".js", ".css", ".json", ".webmanifest", ".svg", ".txt"]);
const HASHED = /-[A-Za-z0-9_-]{8,}\.[a-z0-9]+$/;
const FILES_MAX = 200;
const BYTES_MAX = 8 * 1024 * 1024;
const AGAIN_MS = 2_000;

/**
 * The files that the page is made of, read once and kept: a request names one of them or nothing, and never a path.
 */
export class BoardAssets {
  readonly #folder: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  #files: ReadonlyMap<string, Asset> | null = null;
  #loading: Promise<void> | null = null;
  #triedAt: MonoMs | null = null;

  constructor(folder: string, { clock, log }: { readonly clock: Clock; readonly log: Logger }) {
    this.#folder = folder;
    this.#clock = clock;
    this.#log = log;
  }

  /** Undefined: there is no such file. Null: the page has not been built. */
  async find(name: string): Promise<Asset | undefined | null> {
    if (this.#files === null) await this.#load();
    return this.#files === null ? null : this.#files.get(name);
  }

  #load(): Promise<void> {
    const now = this.#clock.mono();
    if (this.#triedAt !== null && now - this.#triedAt < AGAIN_MS) return this.#loading ?? Promise.resolve();
    this.#triedAt = now;
    this.#loading ??= this.#read().finally(() => (this.#loading = null));
    return this.#loading;
  }

  async #read(): Promise<void> {
    try {
      const files = await readAssets(this.#folder);
      if (files.has("index.html")) this.#files = files;
    } catch (error) {
      this.#log.warn("board.not_built", { message: messageOf(error) });
    }
  }
}

async function readAssets(folder: string): Promise<Map<string, Asset>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  // A link would lead to what is not part of the page.
  const files = entries
    .filter((entry) => entry.isFile() && TYPES[extname(entry.name)] !== undefined)
    .slice(0, FILES_MAX);
  const found = new Map<string, Asset>();
  let bytes = 0;
  for (const { parentPath, name } of files) {
    const path = join(parentPath, name);
    const plain = await readFile(path);
    bytes += plain.length;
    if (bytes > BYTES_MAX) throw new Error(`the page's files have more than ${BYTES_MAX} bytes`);
    found.set(relative(folder, path).split(sep).join("/"), await assetOf(name, plain));
  }
  return found;
}

async function assetOf(name: string, plain: Buffer): Promise<Asset> {
  const extension = extname(name);
  const packs = COMPRESSED.has(extension);
  return {
    type: TYPES[extension] ?? "application/octet-stream",
    etag: `"${createHash("sha256").update(plain).digest("base64url").slice(0, 22)}"`,
    isImmutable: HASHED.test(name),
    plain,
    gzip: packs ? await promisify(gzip)(plain, { level: 9 }) : null,
    brotli: packs ? await promisify(brotliCompress)(plain, { params: { [constants.BROTLI_PARAM_QUALITY]: 10 } }) : null,
  };
}
