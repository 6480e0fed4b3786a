import { closeSync, constants, openSync } from "node:fs";
import { copyFile, open, stat, truncate } from "node:fs/promises";
import { LOG_LINE_CHARS_MAX } from "../../contract/agent-link.ts";
import { escapeControls } from "../../kernel/log.ts";
import type { Secret } from "../../kernel/secret.ts";

/**
 * What an engine writes. It writes to a file itself, so that it neither needs the agent nor waits for it; the agent reads along
 * and keeps the file small.
 *
 * Invariants:
 *   O1. The file and the one before it hold at most `FILE_BYTES_MAX` each, and what is written between two looks.
 *   O2. At most `LINES_MAX` lines are held, each cut to `LOG_LINE_CHARS_MAX`; controls are escaped and the engine's key is masked.
 */
export const FILE_BYTES_MAX = 8 * 1024 * 1024;
const LINES_MAX = 1_000;
const READ_BYTES_MAX = 1024 * 1024;
/** What a taken-over log is read back from its end. */
const TAIL_BYTES = 64 * 1024;

export class EngineLog {
  readonly path: string;
  readonly #key: Secret;
  #lines: string[] = [];
  #at = 0;
  #rest = "";

  constructor(path: string, key: Secret) {
    this.path = path;
    this.#key = key;
  }

  /** For the engine to write to; to be closed once it has been handed over. Each write goes to the end, wherever that is now. */
  openForWriting(): { readonly fd: number; close(): void } {
    const fd = openSync(this.path, constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND, 0o600);
    return { fd, close: () => closeSync(fd) };
  }

  /** Goes to near the end of a log that was written to before. */
  async resume(): Promise<void> {
    const size = await sizeOf(this.path);
    this.#at = Math.max(0, size - TAIL_BYTES);
  }

  /** Newest last. */
  last(count: number): string[] {
    return count <= 0 ? [] : this.#lines.slice(-count);
  }

  /** The whole lines that came since. Reads a bounded part: what is written faster than that is passed over. */
  async poll(): Promise<string[]> {
    const size = await sizeOf(this.path);
    if (size < this.#at) this.#at = 0; // It was cut by an agent before.
    if (size - this.#at > READ_BYTES_MAX) {
      this.#at = size - READ_BYTES_MAX;
      this.#rest = "";
    }
    const text = size === this.#at ? "" : await this.#read(size - this.#at);
    if (size > FILE_BYTES_MAX) await this.#cut();
    const parts = `${this.#rest}${text}`.split(/\r\n|[\r\n]/);
    this.#rest = (parts.pop() ?? "").slice(-LOG_LINE_CHARS_MAX);
    const lines = parts.filter((line) => line !== "").map((line) => this.#clean(line));
    this.#lines = [...this.#lines, ...lines].slice(-LINES_MAX);
    return lines;
  }

  /** With the line that was never ended, when the engine has. */
  async finish(): Promise<void> {
    await this.poll();
    if (this.#rest !== "") this.#lines = [...this.#lines, this.#clean(this.#rest)].slice(-LINES_MAX);
    this.#rest = "";
  }

  #clean(line: string): string {
    return escapeControls(this.#key.maskIn(line.slice(0, LOG_LINE_CHARS_MAX))).slice(0, LOG_LINE_CHARS_MAX);
  }

  async #read(bytes: number): Promise<string> {
    try {
      await using file = await open(this.path, "r");
      const { bytesRead, buffer } = await file.read(Buffer.alloc(bytes), 0, bytes, this.#at);
      this.#at += bytesRead;
      return buffer.toString("utf8", 0, bytesRead);
    } catch {
      return ""; // It is not there yet.
    }
  }

  /** What is written between the copy and the cut is lost: the price of an engine that needs nobody to write. */
  async #cut(): Promise<void> {
    try {
      await copyFile(this.path, `${this.path}.1`);
      await truncate(this.path, 0);
      await truncate(`${this.path}.1`, Math.min(await sizeOf(`${this.path}.1`), FILE_BYTES_MAX));
      this.#at = 0;
    } catch {
      // The disk is full: the next look tries again.
    }
  }
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch {
    return 0;
  }
}
