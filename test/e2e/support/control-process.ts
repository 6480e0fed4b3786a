import type { LeaderAnswer } from "../../../src/contract/control-api.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { freePort } from "../../../src/testing/servers/server-process.ts";
import { readyProgram } from "./program.ts";
import { ProgramRuns } from "./program-runs.ts";

/** What was answered; status 0 when nobody answered in time. */
export interface Answered<T> {
  readonly status: number;
  readonly body: T;
}

/** A control plane as a process, always at the same address. */
export class ControlProcess implements AsyncDisposable {
  readonly port: number;
  readonly #runs: ProgramRuns;
  readonly #key: string;

  static async make(options: { readonly config: string; readonly dataDir: string; readonly key: string }) {
    return new ControlProcess(await freePort(), options);
  }

  private constructor(port: number, { config, dataDir, key }: { config: string; dataDir: string; key: string }) {
    this.port = port;
    this.#key = key;
    const listen = `127.0.0.1:${port}`;
    this.#runs = new ProgramRuns(["control", "--config", config, "--data-dir", dataDir, "--listen", listen]);
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get log(): string {
    return this.#runs.log;
  }

  async start(): Promise<void> {
    await readyProgram(() => this.#runs.start());
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.#runs.signal(name);
  }

  kill(): Promise<void> {
    return this.#runs.kill();
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
