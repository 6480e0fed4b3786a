import type { Clock } from "../../kernel/clock.ts";
import { startThread } from "../../kernel/start-thread.ts";
import { ThreadCalls } from "../../kernel/thread-calls.ts";
import type { CommitOutcome, Doc, DocCommit, DocStore } from "../overflow/doc-store.ts";
import type { DocRequest } from "./doc-worker.ts";

const ANSWER_MS_MAX = 5_000;

/**
 * The ledger in a file of its own, in a thread of its own; this process's alone. Time is the wall clock's at the start and the steady
 * clock's from there on.
 */
export class LocalDocs implements DocStore {
  readonly kind = "local";
  readonly #clock: Clock;
  readonly #ahead: number;
  readonly #thread: ThreadCalls<DocRequest>;

  constructor(path: string, clock: Clock) {
    this.#clock = clock;
    this.#ahead = clock.wall() - clock.mono();
    this.#thread = new ThreadCalls({
      clock,
      start: () => startThread("doc-worker", import.meta.url, { name: "ledger", workerData: { path } }),
      answerMsMax: ANSWER_MS_MAX,
      fault: (why) => new Error(why),
      closed: "the ledger is closed",
    });
  }

  async load(names: readonly string[]): Promise<{ readonly docs: readonly Doc[]; readonly now: number }> {
    const docs = await this.#thread.ask<readonly Doc[]>((call) => ({ kind: "load", call, names }));
    return { docs, now: this.#now() };
  }

  commit(commit: DocCommit): Promise<CommitOutcome> {
    return this.#thread.ask((call) => ({ kind: "commit", call, commit, now: this.#now() }));
  }

  open(kind: string): Promise<readonly (readonly [string, string])[]> {
    return this.#thread.ask((call) => ({ kind: "open", call, of: kind }));
  }

  close(): Promise<void> {
    return this.#thread.close((call) => ({ kind: "close", call }));
  }

  #now(): number {
    return Math.round(this.#clock.mono() + this.#ahead);
  }
}
