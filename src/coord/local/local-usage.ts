import { randomBytes } from "node:crypto";
import type { UsageFlush } from "../../decide/usage/usage-book.ts";
import type { Clock } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import { startThread } from "../../kernel/start-thread.ts";
import { ThreadCalls } from "../../kernel/thread-calls.ts";
import type { UsageAsk, UsagePiece, UsagePlaceRead, UsageStore, UsageWritten } from "../usage/usage-store.ts";
import type { UsageRequest } from "./usage-worker.ts";

const ID_BYTES = 9;
const ANSWER_MS_MAX = 5_000;

/** What was used, in a file of its own, in a thread of its own, which the first request starts; this process's alone. */
export class LocalUsage implements UsageStore {
  readonly kind = "local";
  readonly #id = randomBytes(ID_BYTES).toString("base64url");
  readonly #clock: Clock;
  readonly #thread: ThreadCalls<UsageRequest>;

  constructor(path: string, keepDays: number, clock: Clock) {
    this.#clock = clock;
    this.#thread = new ThreadCalls({
      clock,
      start: () => startThread("usage-worker", import.meta.url, { name: "usage", workerData: { path, keepDays } }),
      answerMsMax: ANSWER_MS_MAX,
      fault: (why) => new Error(why),
      closed: "the record of usage is closed",
    });
  }

  id(): Promise<string> {
    return Promise.resolve(this.#id);
  }

  async add(gateway: string, flush: UsageFlush): Promise<UsageWritten> {
    try {
      await this.#thread.ask((call) => ({ kind: "add", call, gateway, flush, now: this.#clock.wall() }));
      return { kind: "done" };
    } catch (error) {
      return { kind: "unknown", reason: messageOf(error) };
    }
  }

  read(ask: UsageAsk, after: UsagePlaceRead | null): Promise<UsagePiece> {
    return this.#thread.ask((call) => ({ kind: "read", call, ask, after }));
  }

  close(): Promise<void> {
    return this.#thread.close((call) => ({ kind: "close", call }));
  }
}
