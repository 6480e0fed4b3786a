import type { LeaderAnswer } from "../../../src/contract/control-api.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { freePort } from "../../../src/testing/servers/server-process.ts";
import { runProgram, type RunningProgram } from "./program.ts";

/** What was answered; status 0 when nobody answered in time. */
export interface Answered<T> {
  readonly status: number;
  readonly body: T;
}

/** A control plane as a process, always at the same address. */
export class ControlProcess implements AsyncDisposable {
  readonly port: number;
  readonly #args: readonly string[];
  readonly #key: string;
  #program: RunningProgram | null = null;
  /** Of processes that have ended. */
  #said = "";

  static async make(options: { readonly config: string; readonly dataDir: string; readonly key: string }) {
    return new ControlProcess(await freePort(), options);
  }

  private constructor(port: number, { config, dataDir, key }: { config: string; dataDir: string; key: string }) {
    this.port = port;
    this.#key = key;
    const listen = `127.0.0.1:${port}`;
    this.#args = ["control", "--config", config, "--data-dir", dataDir, "--listen", listen, "--log-format", "json"];
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get log(): string {
    return this.#said + (this.#program?.err ?? "");
  }

  async start(): Promise<void> {
    this.#program = runProgram(this.#args);
    await this.#program.ready();
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.#program?.kill(name);
  }

  async kill(): Promise<void> {
    const program = this.#program;
    if (program === null) return;
    this.#program = null;
    await program[Symbol.asyncDispose]();
    this.#said += program.err;
  }

  async ask<T>(method: string, path: string, body?: unknown, waitMs = 5_000): Promise<Answered<T>> {
    const end = new AbortController();
    const timer = systemClock.after(waitMs, () => end.abort(new Error("no answer in time")));
    try {
      const response = await fetch(this.url + path, {
        method,
        headers: { authorization: `Bearer ${this.#key}` },
        signal: end.signal,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { status: response.status, body: (await response.json()) as T };
    } catch {
      return { status: 0, body: {} as T };
    } finally {
      timer.cancel();
    }
  }

  /** Undefined when it does not answer. */
  async leader(): Promise<LeaderAnswer | undefined> {
    const { status, body } = await this.ask<LeaderAnswer>("GET", "/v1/leader", undefined, 1_000);
    return status === 200 ? body : undefined;
  }

  async leads(): Promise<boolean> {
    return (await this.leader())?.role === "leading";
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill();
  }
}
