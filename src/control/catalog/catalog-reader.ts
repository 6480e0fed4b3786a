import type { Worker } from "node:worker_threads";
import type { InvalidYaml } from "../../config/checked-yaml.ts";
import type { Catalog, Model } from "../../contract/catalog.ts";
import { deepFrozen } from "../../contract/resolve-catalog.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";
import { nextTurn } from "../../kernel/next-turn.ts";
import { startThread } from "../../kernel/start-thread.ts";
import { type Assessed, CatalogAssessor, type CatalogQuestion } from "./assess-catalog.ts";
import type { CatalogReply, CatalogRequest } from "./catalog-worker.ts";

/** Some forty models: a few milliseconds. */
const AT_ONCE_CHARS_MAX = 4 * 1024;
/** For the largest catalog, on a machine that has much else to do; `ctl` waits a little longer. */
const READ_MS_MAX = 25_000;
/** Beyond it the next one is refused. */
const WAITING_MAX = 8;
/** The thread holds two catalogs, which nobody needs between changes. */
const IDLE_MS = 30_000;

type Models = Catalog["models"];

/**
 * Reads and compares catalogs, large ones in a thread of its own, which lives while it has something to do.
 *
 * Invariants:
 *   R1. No turn of the event loop reads more than AT_ONCE_CHARS_MAX of a catalog, or takes over more models than one piece holds.
 *   R2. One catalog at a time is in the thread, few wait, and each one ends: by its answer, by the thread's death, or by READ_MS_MAX.
 */
export class CatalogReader {
  readonly #clock: Clock;
  readonly #atOnce = new CatalogAssessor();
  #worker: Worker | undefined;
  #waiting = 0;
  #line: Promise<unknown> = Promise.resolve();
  #idle: Timer | undefined;
  #isClosed = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether the answer is there within the turn. */
  isSmall({ text, before }: Pick<CatalogQuestion, "text" | "before">): boolean {
    return text.length <= AT_ONCE_CHARS_MAX && (before?.text.length ?? 0) <= AT_ONCE_CHARS_MAX;
  }

  /** What the text would change. Throws RATE_LIMITED when too many wait, INTERNAL when the thread gave no answer. */
  async judge(question: CatalogQuestion): Promise<Omit<Assessed, "models"> | InvalidYaml> {
    if (this.isSmall(question)) return this.#atOnce.assess(question);
    const reply = await this.#ask({ ...question, wantsModels: false });
    if (reply.kind === "invalid") return reply;
    const { pieces: _none, ...judged } = reply;
    return judged;
  }

  /** The same with the models, frozen. */
  async open(question: CatalogQuestion): Promise<Assessed | InvalidYaml> {
    if (this.isSmall(question)) return this.#atOnce.assess(question);
    const reply = await this.#ask({ ...question, wantsModels: true });
    if (reply.kind === "invalid") return reply;
    const { pieces, ...judged } = reply;
    return { ...judged, models: await takeOver(pieces ?? []) };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#idle?.cancel();
    await this.#worker?.terminate();
  }

  async #ask(request: CatalogRequest): Promise<CatalogReply> {
    if (this.#waiting >= WAITING_MAX)
      throw new YardmasterError("RATE_LIMITED", `${WAITING_MAX} catalogs wait to be read already`);
    this.#waiting += 1;
    const turn = this.#line.then(() => this.#inThread(request));
    this.#line = turn.catch(() => {}); // Told to whoever waits for the turn.
    try {
      return await turn;
    } finally {
      this.#waiting -= 1;
    }
  }

  async #inThread(request: CatalogRequest): Promise<CatalogReply> {
    if (this.#isClosed) throw new YardmasterError("INTERNAL", "the control plane is stopping");
    this.#idle?.cancel();
    const worker = (this.#worker ??= startThread("catalog-worker", import.meta.url, {
      name: "catalogs",
      workerData: null,
    }));
    const { promise, resolve, reject } = Promise.withResolvers<CatalogReply>();
    const onExit = (): void => reject(new Error("its thread ended"));
    worker.once("message", resolve).once("error", reject).once("exit", onExit);
    const timer = this.#clock.after(READ_MS_MAX, () => reject(new Error(`no answer within ${READ_MS_MAX} ms`)));
    worker.ref();
    worker.postMessage(request);
    try {
      return await promise;
    } catch (error) {
      this.#drop(worker);
      throw new YardmasterError("INTERNAL", `the catalog could not be read: ${messageOf(error)}`);
    } finally {
      timer.cancel();
      worker.off("message", resolve).off("error", reject).off("exit", onExit).unref();
      this.#idle = this.#clock.after(IDLE_MS, () => this.#drop(worker));
    }
  }

  #drop(worker: Worker): void {
    if (this.#worker === worker) this.#worker = undefined;
    // What it may still say is of no use.
    worker.on("error", () => {});
    void worker.terminate();
  }
}

/** R1. */
async function takeOver(pieces: readonly string[]): Promise<Models> {
  const models = new Map<string, Model>();
  for (const piece of pieces) {
    for (const model of JSON.parse(piece) as Model[]) models.set(model.name, deepFrozen(model));
    await nextTurn();
  }
  return models;
}
