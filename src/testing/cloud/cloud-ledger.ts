import { Watched } from "../wait-for.ts";
import type { CloudAction } from "./cloud-script.ts";

/** One piece of work that the cloud took. */
export interface CloudTask {
  readonly id: string;
  readonly idempotencyKey: string | null;
  /** Path of the submission. */
  readonly path: string;
  readonly body: string;
  readonly action: CloudAction;
  /** What the cloud charges for it, in millionths; nothing once it was called off. */
  chargedMicros: number;
  looks: number;
  lost: boolean;
  cancelled: boolean;
  /** Its result was handed over. */
  fetched: boolean;
}

/** The cloud's own account. Tests trust it instead of the gateway's figures. */
export interface CloudLedger {
  /** Requests to take work, refused ones too. */
  readonly submits: number;
  readonly refused: number;
  /** Submissions that named the key of an earlier one and were given its task. */
  readonly repeated: number;
  /** Oldest first. */
  readonly tasks: readonly CloudTask[];
  /** What it charges for all tasks together, in millionths. */
  readonly chargedMicros: number;
}

export type TaskState = "queued" | "running" | "succeeded" | "failed";

export class CloudTasks {
  readonly #state = new Watched();
  readonly #tasks = new Map<string, CloudTask>();
  #submits = 0;
  #refused = 0;
  #repeated = 0;
  /** Of one piece of work, in millionths. Changed: work that is taken from then on. */
  priceMicros = 0;

  countSubmit(): void {
    this.#submits += 1;
    this.#state.changed();
  }

  countRefusal(): void {
    this.#refused += 1;
    this.#state.changed();
  }

  madeFor(key: string): CloudTask | undefined {
    return [...this.#tasks.values()].find(({ idempotencyKey }) => idempotencyKey === key);
  }

  /** `dedupes`: a known key gives the task that has it. */
  takeIn(work: Pick<CloudTask, "idempotencyKey" | "path" | "body" | "action">, dedupes: boolean): CloudTask {
    const known = [...this.#tasks.values()].find((task) => task.idempotencyKey === work.idempotencyKey);
    if (dedupes && work.idempotencyKey !== null && known !== undefined) {
      this.#repeated += 1;
      this.#state.changed();
      return known;
    }
    // Beyond what a double holds, as such ids are.
    const id = String(9_007_199_254_740_993n + BigInt(this.#tasks.size));
    const marks = { looks: 0, lost: false, cancelled: false, fetched: false };
    const task: CloudTask = { ...work, ...marks, id, chargedMicros: this.priceMicros };
    this.#tasks.set(id, task);
    this.#state.changed();
    return task;
  }

  /** One look; undefined when the cloud knows nothing of the task. */
  look(id: string): CloudTask | undefined {
    const task = this.find(id);
    if (task === undefined) return undefined;
    task.looks += 1;
    if (task.looks > (task.action.lostAfterLooks ?? Number.POSITIVE_INFINITY)) task.lost = true;
    this.#state.changed();
    return task.lost ? undefined : task;
  }

  find(id: string): CloudTask | undefined {
    const task = this.#tasks.get(id);
    return task === undefined || task.lost ? undefined : task;
  }

  stateOf({ action, cancelled, looks }: CloudTask): TaskState {
    if (cancelled) return "failed";
    const { looksUnder = 1, end = "succeeded" } = action;
    if (end === "never" || looks <= looksUnder) return looks <= 1 ? "queued" : "running";
    return end === "noResult" ? "succeeded" : end;
  }

  /** False: it has ended already. */
  cancel(task: CloudTask): boolean {
    if (["succeeded", "failed"].includes(this.stateOf(task))) return false;
    task.cancelled = true;
    task.chargedMicros = 0;
    this.#state.changed();
    return true;
  }

  handOver(task: CloudTask): void {
    task.fetched = true;
    this.#state.changed();
  }

  ledger(): CloudLedger {
    const tasks = [...this.#tasks.values()].map((task) => ({ ...task }));
    return {
      submits: this.#submits,
      refused: this.#refused,
      repeated: this.#repeated,
      tasks,
      chargedMicros: tasks.reduce((sum, task) => sum + task.chargedMicros, 0),
    };
  }

  until(what: string, met: (ledger: CloudLedger) => boolean): Promise<void> {
    return this.#state.until(what, () => met(this.ledger()));
  }
}
