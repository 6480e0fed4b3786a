import { isOpen, JOB_STATES, laneOf, type JobRecord } from "../../contract/job.ts";
import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";

/** Names of everything that jobs have in Redis. One hash tag for all of them, so that each script finds its keys on one node. */
export class JobKeys {
  readonly #tag: string;
  readonly epoch: string;
  readonly sizes: string;
  readonly totals: string;
  readonly counter: string;
  readonly fronts: string;
  readonly all: string;
  readonly delayed: string;
  readonly claims: string;
  readonly due: string;
  readonly ended: string;
  readonly callbacks: string;
  readonly channel: string;

  constructor(prefix: string) {
    this.#tag = `{${prefix}:jobs}`;
    this.epoch = this.#named("epoch");
    this.sizes = this.#named("sizes");
    this.totals = this.#named("totals");
    this.counter = this.#named("counter");
    this.fronts = this.#named("fronts");
    this.all = this.#named("all");
    this.delayed = this.#named("delayed");
    this.claims = this.#named("claims");
    this.due = this.#named("due");
    this.ended = this.#named("ended");
    this.callbacks = this.#named("callbacks");
    this.channel = this.#named("changed");
  }

  job = (id: string): string => this.#named(`job:${id}`);
  bytes = (id: string): string => this.#named(`bytes:${id}`);
  parts = (id: string): string => this.#named(`parts:${id}`);
  ofKey = (keyId: string): string => this.#named(`key:${keyId}`);
  idempotency = (scopeHash: string): string => this.#named(`same:${scopeHash}`);
  turns = (requestClass: RequestClass): string => this.#named(`turns:${requestClass}`);
  ready = (requestClass: RequestClass, lane: string): string => this.#named(`ready:${requestClass}:${lane}`);
  open = (state: string, requestClass: RequestClass): string => this.#named(`${state}:${requestClass}`);

  /** Where a job stands in the indexes, and at which score, by what the record says. */
  indexesOf(job: JobRecord, now: number): ReadonlyMap<string, number> {
    const indexes = new Map<string, number>([
      [this.all, job.seq],
      [this.ofKey(job.keyId), job.seq],
    ]);
    if (isOpen(job.state)) {
      indexes.set(this.open(job.state, job.class), job.seq);
      indexes.set(this.due, job.deadlineAt);
    }
    if (job.state === "queued") {
      if (job.readyAt > now) indexes.set(this.delayed, job.readyAt);
      else indexes.set(this.ready(job.class, laneOf(job)), job.order);
    }
    if (job.claim !== null) indexes.set(this.claims, job.claim.until);
    if (job.expiresAt !== null) indexes.set(this.ended, job.expiresAt);
    if (job.callback?.state === "waiting") indexes.set(this.callbacks, job.callback.nextAt);
    return indexes;
  }

  /** Every index that a job may stand in. */
  everyIndexOf(job: JobRecord): readonly string[] {
    return [
      this.all,
      this.ofKey(job.keyId),
      ...JOB_STATES.filter(isOpen).map((state) => this.open(state, job.class)),
      this.due,
      this.delayed,
      this.ready(job.class, laneOf(job)),
      this.claims,
      this.ended,
      this.callbacks,
    ];
  }

  #named(name: string): string {
    return `${this.#tag}:${name}`;
  }
}

export const OPEN_COUNTS = (["queued", "running"] as const).flatMap((state) =>
  REQUEST_CLASSES.map((requestClass) => ({ state, requestClass })),
);
