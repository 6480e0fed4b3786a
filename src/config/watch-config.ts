import { watch } from "node:fs";
import type { FSWatcher } from "node:fs";
import { stat } from "node:fs/promises";
import { dirname } from "node:path";
import type { Clock, MonoMs, Timer } from "../kernel/clock.ts";
import { formatProblems } from "./config-problem.ts";
import type { ConfigProblem } from "./config-problem.ts";

/**
 * Re-reads a file, the configuration or the catalog, when it has changed. The file is told by where its name leads (device, inode, size, times),
 * so a write in place, a rename over it and a symlink that is swapped anywhere on the way are all seen.
 *
 * Invariants:
 *   C1. One load at a time, and the last one to be applied saw the file as it is now.
 *   C2. Nothing is applied while the file is being written: `QUIET_MS` must pass without a change, or `QUIET_MS_MAX` in all; more
 *       where a file of which only a part is there would pass for a whole one (`settle`).
 *   C3. An invalid file changes nothing but `onInvalid`, once per distinct set of mistakes.
 */
export const QUIET_MS = 200;
export const QUIET_MS_MAX = 2_000;
export const POLL_MS = 2_000;

/** What was read, if it can be used; `digest` names its text. */
interface Valid {
  readonly kind: "valid";
  readonly digest: string;
}
type Loaded<V extends Valid> = V | { readonly kind: "invalid"; readonly problems: readonly ConfigProblem[] };

export interface ReloadPorts<V extends Valid> {
  readonly clock: Clock;
  /** Changes whenever the file may have changed; never rejects. */
  readonly signature: () => Promise<string>;
  readonly load: () => Promise<Loaded<V>>;
  readonly onValid: (loaded: V) => void;
  readonly onInvalid: (problems: readonly ConfigProblem[]) => void;
  /** Digest of the configuration that is in force; the same text again is not applied twice. */
  readonly digest: string | undefined;
  /** After the first reading; absent: `QUIET_MS` and `QUIET_MS_MAX`. */
  readonly settle?: { readonly quietMs: number; readonly quietMsMax: number };
  readonly signal: AbortSignal;
}

const QUIET = { quietMs: QUIET_MS, quietMsMax: QUIET_MS_MAX };

export class ConfigReloader<V extends Valid> {
  readonly #ports: ReloadPorts<V>;
  #seen: string | undefined;
  #digest: string | undefined;
  #problems: string | undefined;
  #quiet: Timer | undefined;
  #changingSince: MonoMs | undefined;
  #loading = false;
  #again = false;
  #forced = false;
  #wasRead = false;

  constructor(ports: ReloadPorts<V>) {
    this.#ports = ports;
    this.#digest = ports.digest;
    this.#poll();
    this.look();
  }

  /** Something may have happened to the file. */
  look(): void {
    void this.#look();
  }

  /** Reads the file now and applies it even if its text is the same. */
  reload(): void {
    this.#forced = true;
    void this.#load();
  }

  #poll(): void {
    if (this.#ports.signal.aborted) return;
    this.#ports.clock.after(POLL_MS, () => {
      this.look();
      this.#poll();
    });
  }

  async #look(): Promise<void> {
    const signature = await this.#ports.signature();
    if (signature === this.#seen || this.#ports.signal.aborted) return;
    this.#seen = signature;
    const now = this.#ports.clock.mono();
    this.#changingSince ??= now;
    this.#quiet?.cancel();
    const { quietMs, quietMsMax } = (this.#wasRead ? this.#ports.settle : undefined) ?? QUIET;
    const waitMs = Math.max(0, Math.min(quietMs, this.#changingSince + quietMsMax - now));
    this.#quiet = this.#ports.clock.after(waitMs, () => void this.#load());
  }

  async #load(): Promise<void> {
    this.#quiet?.cancel();
    this.#quiet = undefined;
    if (this.#loading) {
      this.#again = true;
      return;
    }
    this.#loading = true;
    do {
      this.#again = false;
      this.#changingSince = undefined;
      const before = await this.#ports.signature();
      this.#seen = before;
      const loaded = await this.#ports.load();
      this.#wasRead = true;
      if (this.#ports.signal.aborted) return;
      // Changed while it was read: what was read may be half of it. The change is seen by `#look`, which loads again.
      if ((await this.#ports.signature()) !== before) this.look();
      else this.#apply(loaded);
    } while (this.#again && !this.#ports.signal.aborted);
    this.#loading = false;
  }

  #apply(loaded: Loaded<V>): void {
    const forced = this.#forced;
    this.#forced = false;
    if (loaded.kind === "invalid") {
      const problems = formatProblems(loaded.problems);
      if (problems === this.#problems && !forced) return;
      this.#problems = problems;
      this.#ports.onInvalid(loaded.problems);
      return;
    }
    const wasInvalid = this.#problems !== undefined;
    this.#problems = undefined;
    if (loaded.digest === this.#digest && !forced && !wasInvalid) return;
    this.#digest = loaded.digest;
    this.#ports.onValid(loaded);
  }
}

export interface WatchOptions<V extends Valid> extends Omit<ReloadPorts<V>, "signature"> {
  readonly path: string;
}

/** Watches until the signal is aborted. `reload()` is for SIGHUP. */
export function watchConfig<V extends Valid>(options: WatchOptions<V>): { reload(): void } {
  const reloader = new ConfigReloader({ ...options, signature: () => fileSignature(options.path) });
  watchFolder(dirname(options.path), () => reloader.look(), options.signal);
  return { reload: () => reloader.reload() };
}

async function fileSignature(path: string): Promise<string> {
  try {
    const info = await stat(path, { bigint: true });
    return `${info.dev}:${info.ino}:${info.size}:${info.mtimeNs}:${info.ctimeNs}`;
  } catch (err) {
    return err instanceof Error && "code" in err ? String(err.code) : "unreadable";
  }
}

/** The folder, not the file: a watch on a file stays with the inode that a rename has just put aside. Without it there is the poll. */
function watchFolder(folder: string, onEvent: () => void, signal: AbortSignal): void {
  if (signal.aborted) return;
  let watcher: FSWatcher;
  try {
    watcher = watch(folder, { persistent: false }, onEvent);
  } catch {
    return;
  }
  watcher.on("error", () => watcher.close());
  signal.addEventListener("abort", () => watcher.close(), { once: true });
}
