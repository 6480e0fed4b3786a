import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stringify } from "yaml";
import { Watched, within } from "../../../src/testing/wait-for.ts";

const ROOT = join(import.meta.dirname, "../../..");
export const PROGRAM = join(ROOT, "bin/yardmaster");
const READY_MS_MAX = 120_000;
const EXIT_MS_MAX = 60_000;

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
}

/** The real program as a process of its own. Disposing it kills what is left of it. */
export class RunningProgram implements AsyncDisposable {
  readonly ended: Promise<Ended>;
  readonly #child: ChildProcess;
  readonly #state = new Watched();
  #out = "";
  #err = "";
  #over = false;

  constructor(
    command: string,
    args: readonly string[],
    options: { readonly cwd?: string; readonly env?: Record<string, string>; readonly detached?: boolean } = {},
  ) {
    this.#child = spawn(command, args, {
      cwd: options.cwd ?? ROOT,
      env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...options.env },
      stdio: ["ignore", "pipe", "pipe"],
      detached: options.detached === true,
    });
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#out += text;
      this.#state.changed();
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#err += text;
      this.#state.changed();
    });
    const ended = new Promise<Ended>((resolve, reject) => {
      this.#child.once("error", reject);
      this.#child.once("close", (code, signal) => {
        this.#over = true;
        this.#state.changed();
        resolve({ code, signal, out: this.#out, err: this.#err });
      });
    });
    this.ended = ended;
    ended.catch(() => {}); // Told to whoever waits.
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get out(): string {
    return this.#out;
  }

  get err(): string {
    return this.#err;
  }

  /** Waits for output of either stream. */
  async said(pattern: RegExp, from: "out" | "err" = "out"): Promise<RegExpExecArray> {
    const text = (): string => (from === "out" ? this.#out : this.#err);
    await this.#state.until(
      `${String(pattern)} on std${from}`,
      () => {
        if (pattern.test(text())) return true;
        if (this.#over) throw new Error(`the program ended; it said: ${this.#out}${this.#err}`);
        return false;
      },
      READY_MS_MAX,
    );
    const found = pattern.exec(text());
    if (found === null) throw new Error("a pattern that held does not hold");
    return found;
  }

  /** The port in the line that says that it can serve. */
  async ready(): Promise<number> {
    const found = await this.said(/^yardmaster [a-z-]+ ready listen=\S+?:(\d+) .*$/m);
    return Number(found[1]);
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** To the program and all that it started, for one that was started detached. */
  killGroup(signal: NodeJS.Signals): void {
    process.kill(-this.pid, signal);
  }

  end(): Promise<Ended> {
    return within("end of the program", this.ended, EXIT_MS_MAX);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#over) this.#child.kill("SIGKILL");
    await this.ended.catch(() => {});
  }
}

export const runProgram = (
  args: readonly string[],
  options: ConstructorParameters<typeof RunningProgram>[2] = {},
): RunningProgram => new RunningProgram(PROGRAM, args, options);

const STARTS_MAX = 5;

/**
 * A program that can serve, and its port. As a service manager does, it starts one again that a database on a busy machine did
 * not answer in its time.
 */
export async function readyProgram(start: () => RunningProgram): Promise<{ program: RunningProgram; port: number }> {
  for (let starts = 1; ; starts += 1) {
    const program = start();
    try {
      return { program, port: await program.ready() };
    } catch (error) {
      if (starts === STARTS_MAX || !program.err.includes("connection timeout")) throw error;
    }
  }
}

const hashOf = (key: string): string => `sha256:${createHash("sha256").update(key).digest("hex")}`;

export const CLIENT_KEY = "CANARY-client-0123456789abcdef0123456789abcdef";
export const OPERATOR_KEY = "CANARY-operator-0123456789abcdef0123456789abcdef";

/** A folder of its own with a configuration file in it. */
export interface ProgramFolder extends AsyncDisposable {
  readonly path: string;
  readonly config: string;
  write(file: Record<string, unknown>): Promise<void>;
}

/** The configuration as an object; `listen`, data folder and two keys are there already. */
export function configText(folder: string, file: Record<string, unknown>): string {
  const keys = [
    { id: "client", hash: hashOf(CLIENT_KEY), role: "client", classes: ["interactive", "system", "batch"] },
    { id: "operator", hash: hashOf(OPERATOR_KEY), role: "admin" },
  ];
  return stringify({ listen: "127.0.0.1:0", data_dir: join(folder, "data"), auth: { mode: "keys", keys }, ...file });
}

export async function programFolder(file?: Record<string, unknown>): Promise<ProgramFolder> {
  const path = await mkdtemp(join(tmpdir(), "yardmaster-program-"));
  const config = join(path, "yardmaster.yaml");
  const write = (next: Record<string, unknown>): Promise<void> =>
    writeFile(config, configText(path, next), { mode: 0o600 });
  if (file !== undefined) await write(file);
  return {
    path,
    config,
    write,
    [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true, maxRetries: 5 }),
  };
}

/** What `startCall` and `call` need to reach a gateway that is a process. */
export const reach = (
  port: number,
): {
  readonly port: number;
  readonly keys: {
    readonly client: string;
    readonly operator: string;
    readonly admin: string;
    readonly approver: string;
    readonly agent: string;
    readonly gateway: string;
    readonly metrics: string;
  };
} => ({
  port,
  keys: {
    client: CLIENT_KEY,
    operator: OPERATOR_KEY,
    admin: OPERATOR_KEY,
    approver: "",
    agent: "",
    gateway: "",
    metrics: "",
  },
});
