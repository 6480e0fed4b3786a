import { createHash, randomBytes } from "node:crypto";
import type { JobPart, JobRecord } from "../../contract/job.ts";
import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";
import { decideSubmit } from "../../decide/jobs/decide-submit.ts";
import { placeInLane } from "../../decide/jobs/fair-order.ts";
import { newJob, type JobAsk } from "../../decide/jobs/new-job.ts";
import type { ClaimWish } from "../../decide/jobs/plan-claims.ts";
import { stepJob, type JobEvent } from "../../decide/jobs/step-job.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Random } from "../../kernel/random.ts";
import {
  type ChangeOutcome,
  type JobBlobs,
  type JobCounts,
  type JobListQuery,
  type JobPage,
  type JobRead,
  type JobStore,
  type JobStoreLimits,
  type SubmitOutcome,
  unavailable,
} from "../jobs/job-store.ts";
import { JobKeys, OPEN_COUNTS } from "./job-keys.ts";
import { JobSteps, partName } from "./job-steps.ts";
import type { RedisLink } from "./redis-link.ts";
import { RedisSubscriber } from "./subscriber.ts";

export interface RedisJobStoreOptions {
  readonly link: RedisLink;
  /** Another way to the same server, for bytes that would hold up what is asked on the first. */
  readonly bytesLink: RedisLink;
  readonly limits: JobStoreLimits;
  readonly clock: Clock;
  readonly random: Random;
  /** Replicas that must have an accepted job and an outcome before they count; 0: the server alone. */
  readonly replicas: number;
  /** For the replicas to answer. */
  readonly replicasMs: number;
  /** A way of its own for what waits for replicas, since that holds up all else on a connection. */
  readonly waitingLink: RedisLink | null;
}

/** Beyond the longest life of a job: what nobody looks after any more goes by itself. */
const INDEX_MS = 45 * 86_400_000;
const KEPT_BEYOND_MS = 3_600_000;
/** A change that others keep getting ahead of. */
const TRIES_MAX = 10;
const CLAIM_ROUNDS = 3;
const DUE_MAX = 100;
const LIST_READ_MAX = 500;
/** For the channel at the start. Whoever listens is told to look for itself when it is heard later. */
const LISTEN_MS = 1_000;
const TOKEN_BYTES = 16;

/** Jobs in Redis: shared by all gateways, as durable as the server and its replicas are. */
export async function openRedisJobStore(options: RedisJobStoreOptions): Promise<JobStore> {
  const store = new RedisJobStore(options);
  await store.open();
  return store;
}

/**
 * Invariants:
 *   Q1. Decisions are made here, by `stepJob`, on a record that was read; the script writes them only over that same version, so
 *       of two that decide at once one writes and the other decides anew.
 *   Q2. The time of every decision is the server's.
 *   Q3. A submit whose time is over does nothing when the server gets to it later.
 *   Q4. How many jobs there ever were is written in one step with each job, so in one life of a store it never goes back: where an
 *       answer says fewer than were known when it was asked for, a server took over that lacks the others, and that is told once.
 */
class RedisJobStore implements JobStore {
  readonly kind = "redis";
  epoch: string | undefined;
  readonly #options: RedisJobStoreOptions;
  readonly #keys: JobKeys;
  readonly #steps: JobSteps;
  readonly #listeners = new Set<(id: string | null) => void>();
  readonly #subscriber: RedisSubscriber;
  /** The most jobs that there ever were, as heard in this life of the store. */
  #accepted = 0;
  /** Grows when a server was found to have taken over: answers to what was asked before say nothing of it. */
  #takeovers = 0;
  #lost = 0;
  #front: Partial<Record<RequestClass, number>> = {};

  constructor(options: RedisJobStoreOptions) {
    const { link, bytesLink, clock, random } = options;
    this.#options = options;
    this.#keys = new JobKeys(link.settings.keyPrefix);
    this.#steps = new JobSteps(link, bytesLink, this.#keys);
    this.#subscriber = new RedisSubscriber(link, { clock, random });
  }

  get durability(): "replicated" | "server" {
    return this.#options.replicas > 0 ? "replicated" : "server";
  }

  async open(): Promise<void> {
    await this.#listen();
    try {
      await this.sweep();
    } catch {
      // A server that is away now is found by a later sweep.
    }
  }

  /** Resolves when it listens; also while the server is away, or when that takes too long. */
  async #listen(): Promise<void> {
    const { link, clock } = this.#options;
    const { promise: listening, resolve } = Promise.withResolvers<void>();
    this.#subscriber.listen(this.#keys.channel, {
      onMessage: (id) => this.#tell(id),
      onListening: () => {
        resolve();
        this.#tell(null);
      },
    });
    if (link.state !== "closed") return;
    const timer = clock.after(LISTEN_MS, resolve);
    await listening;
    timer.cancel();
  }

  #tell(id: string | null): void {
    for (const listener of this.#listeners) listener(id);
  }

  async submit(ask: JobAsk, blobs: JobBlobs): Promise<SubmitOutcome> {
    this.#checkFitness();
    const scope =
      ask.idempotency === null ? null : createHash("sha256").update(ask.idempotency.scope).digest("base64url");
    for (let attempt = 0; attempt < TRIES_MAX; attempt += 1) {
      const asking = this.#known();
      const prepared = await this.#steps.prepare(ask.class, ask.keyId, scope, newEpoch(), INDEX_MS);
      this.#heard(prepared.epoch, prepared.accepted, asking);
      const known = prepared.named === "" ? undefined : (await this.#steps.read(prepared.named))?.job;
      const decision = decideSubmit(known, ask.idempotency?.fingerprint ?? "");
      if (decision.kind === "mismatch") return decision;
      if (decision.kind === "replay" && known !== undefined) {
        // The first answer may have failed for want of replicas: this one promises the same.
        await this.#replicate(known);
        return { kind: "replayed", job: known };
      }
      const job = newJob(ask, {
        id: `job_${prepared.epoch}_${randomBytes(TOKEN_BYTES).toString("base64url")}`,
        seq: prepared.seq,
        order: placeInLane(prepared.front, prepared.last, ask.weight),
        now: prepared.now,
        instead: decision.kind === "afresh" ? decision.instead : null,
      });
      const submitting = this.#known();
      const { said, accepted } = await this.#steps.submit(job, blobs, {
        scope,
        named: prepared.named,
        limits: this.#options.limits,
        indexes: this.#keys.indexesOf(job, prepared.now),
        keepMs: lifeOf(job, prepared.now),
        indexMs: INDEX_MS,
      });
      if (said === "ok") {
        if (prepared.epoch === this.epoch && submitting.takeovers === this.#takeovers) {
          this.#heard(prepared.epoch, accepted - 1, submitting);
          this.#accepted = Math.max(this.#accepted, accepted);
        }
        await this.#replicate(job);
        return { kind: "accepted", job };
      }
      if (said === "jobs" || said === "bytes") return { kind: "full", what: said };
      if (said === "late") throw unavailable("it answered too late, and accepted nothing");
      // "taken" or "epoch": somebody was faster, or the store was emptied in between.
    }
    throw unavailable("too many submits under one idempotency key at once");
  }

  async get(id: string): Promise<JobRead | undefined> {
    const { read, epoch } = await this.#steps.find(id);
    // It is not there because nothing is: whoever asks why is told by the epoch.
    if (read === undefined && epoch !== this.epoch) await this.#learnEpoch();
    return read;
  }

  async list({ keyId, state, limit, cursor }: JobListQuery): Promise<JobPage> {
    const index = keyId === null ? this.#keys.all : this.#keys.ofKey(keyId);
    const jobs: JobRead[] = [];
    let before = cursor;
    let looked = 0;
    for (;;) {
      const wanted = limit + 1 - jobs.length;
      const ids = await this.#steps.newest(index, before, state === null ? wanted : Math.max(wanted, 50));
      const read = (await Promise.all(ids.map((id) => this.#steps.read(id)))).filter((each) => each !== undefined);
      jobs.push(...read.filter(({ job }) => state === null || job.state === state));
      looked += ids.length;
      before = read.at(-1)?.job.seq ?? null;
      if (jobs.length > limit) return { jobs: jobs.slice(0, limit), cursor: jobs[limit - 1]?.job.seq ?? null };
      if (ids.length < wanted || before === null) return { jobs, cursor: null };
      if (looked >= LIST_READ_MAX) return { jobs, cursor: before };
    }
  }

  async claim(wishes: readonly ClaimWish[], leaseMs: number): Promise<readonly JobRecord[]> {
    const claimed: JobRecord[] = [];
    const inTurn: JobRecord[] = [];
    let open = wishes;
    for (let round = 0; round < CLAIM_ROUNDS && open.length > 0; round += 1) {
      const candidates = await this.#steps.ready(open);
      if (candidates.every((ids) => ids.length === 0)) break;
      const got = await Promise.all(candidates.map((ids) => Promise.all(ids.map((id) => this.#claimOne(id, leaseMs)))));
      const counts = got.map((jobs) => jobs.filter((job) => job !== null));
      claimed.push(...counts.flat());
      inTurn.push(...counts.flatMap((jobs, index) => (open[index]?.fromEnd === true ? [] : jobs)));
      // Those that somebody else got first leave room for others behind them.
      open = open
        .map((wish, index) => ({ ...wish, max: wish.max - (counts[index]?.length ?? 0) }))
        .filter((wish, index) => wish.max > 0 && (counts[index]?.length ?? 0) < (candidates[index]?.length ?? 0));
    }
    await this.#moveFronts(inTurn);
    return claimed;
  }

  async change(id: string, event: JobEvent, result?: Buffer): Promise<ChangeOutcome> {
    const outcome = await this.#change(id, (read) => stepJob(read.job, event, read.now, this.#options.random), {
      quiet: event.kind === "renew",
      result,
    });
    if (outcome.kind === "moved" && outcome.ended) await this.#replicate(outcome.job);
    return outcome;
  }

  writePart(id: string, token: string, part: JobPart, bytes: Buffer | null): Promise<boolean> {
    return this.#steps.writePart(id, token, part, bytes);
  }

  parts(id: string): Promise<readonly JobPart[]> {
    return this.#steps.parts(id);
  }

  readBlob(id: string, name: string): Promise<Buffer | undefined> {
    return this.#steps.readBytes(id, name);
  }

  readPartBytes(id: string, index: number): Promise<Buffer | undefined> {
    return this.#steps.readBytes(id, partName(index));
  }

  async #learnEpoch(indexes: readonly string[] = []): Promise<readonly string[]> {
    const asking = this.#known();
    const { epoch, accepted, ids } = await this.#steps.due(indexes, newEpoch(), INDEX_MS, DUE_MAX);
    this.#heard(epoch, accepted, asking);
    return ids;
  }

  async sweep(): Promise<readonly JobRecord[]> {
    const { delayed, claims, due, ended } = this.#keys;
    const found = await this.#learnEpoch([delayed, claims, due, ended]);
    const over: JobRecord[] = [];
    for (const id of new Set(found)) {
      const outcome = await this.#change(
        id,
        ({ job, partsDone, now }) => {
          const step = stepJob(job, { kind: "tick", partsDone }, now, this.#options.random);
          // Its delay is over: the record stays, its place in the indexes changes.
          if (step.kind === "same" && job.state === "queued" && job.readyAt <= now)
            return { kind: "moved", ended: false, job: { ...job, version: job.version + 1 } };
          return step;
        },
        { quiet: false },
      );
      if (outcome.kind === "moved" && outcome.ended) over.push(outcome.job);
      if (outcome.kind === "unknown") await this.#steps.dropFromIndexes(id, [delayed, claims, due, ended]);
    }
    await this.#dropTurns();
    return over;
  }

  async dueCallbacks(limit: number): Promise<readonly JobRecord[]> {
    const { ids } = await this.#steps.due([this.#keys.callbacks], newEpoch(), INDEX_MS, limit);
    const read = await Promise.all(ids.map((id) => this.#steps.read(id)));
    return read.flatMap((each) => (each === undefined ? [] : [each.job]));
  }

  async counts(): Promise<JobCounts> {
    const { all, callbacks, totals } = this.#keys;
    const opens = OPEN_COUNTS.map(({ state, requestClass }) => this.#keys.open(state, requestClass));
    const [kept = 0, waiting = 0, ...counted] = await this.#steps.cardinalities([all, callbacks, ...opens]);
    const of = (wanted: string): Record<RequestClass, number> => {
      const counts = { interactive: 0, system: 0, batch: 0 };
      for (const [index, { state, requestClass }] of OPEN_COUNTS.entries())
        if (state === wanted) counts[requestClass] = counted[index] ?? 0;
      return counts;
    };
    return {
      queued: of("queued"),
      running: of("running"),
      kept,
      bytes: await this.#steps.totalBytes(totals),
      callbacks: waiting,
    };
  }

  async waiting(lanes: readonly string[]): Promise<number> {
    const keys = REQUEST_CLASSES.flatMap((requestClass) => lanes.map((lane) => this.#keys.ready(requestClass, lane)));
    return (await this.#steps.cardinalities(keys)).reduce((sum, count) => sum + count, 0);
  }

  takeLost(): number {
    const lost = this.#lost;
    this.#lost = 0;
    return lost;
  }

  onChange(listener: (id: string | null) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  close(): Promise<void> {
    this.#subscriber.close();
    this.#options.bytesLink.close();
    this.#options.waitingLink?.close();
    return Promise.resolve();
  }

  async #claimOne(id: string, leaseMs: number): Promise<JobRecord | null> {
    const token = randomBytes(TOKEN_BYTES).toString("base64url");
    const outcome = await this.#change(
      id,
      ({ job, now }) => stepJob(job, { kind: "claim", token, leaseMs }, now, this.#options.random),
      { quiet: false },
    );
    return outcome.kind === "moved" ? outcome.job : null;
  }

  async #change(
    id: string,
    decide: (read: JobRead) => ReturnType<typeof stepJob>,
    options: { readonly quiet: boolean; readonly result?: Buffer | undefined },
  ): Promise<ChangeOutcome> {
    for (let attempt = 0; attempt < TRIES_MAX; attempt += 1) {
      const read = await this.#steps.read(id, true);
      if (read === undefined) return { kind: "unknown" };
      const step = decide(read);
      if (step.kind === "refused") return { ...step, job: read.job };
      if (step.kind === "same") return { kind: "same", job: read.job };
      const before = this.#keys.everyIndexOf(read.job);
      const after = step.kind === "forgotten" ? new Map<string, number>() : this.#keys.indexesOf(step.job, read.now);
      const written = await this.#steps.apply({
        id,
        from: read.job,
        to: step.kind === "forgotten" ? null : step.job,
        indexes: before.map((index) => [index, after.get(index)] as const),
        keepMs: step.kind === "forgotten" ? 0 : lifeOf(step.job, read.now),
        indexMs: INDEX_MS,
        result: options.result,
        quiet: options.quiet,
      });
      if (!written) continue;
      return step.kind === "forgotten" ? { kind: "forgotten", job: read.job } : step;
    }
    throw unavailable("too many changes of one job at once");
  }

  async #moveFronts(claimed: readonly JobRecord[]): Promise<void> {
    const moved: [string, number][] = [];
    for (const requestClass of REQUEST_CLASSES) {
      const places = claimed.filter((job) => job.class === requestClass).map((job) => job.order);
      if (places.length === 0) continue;
      const front = Math.max(...places);
      this.#front[requestClass] = front;
      moved.push([requestClass, front]);
    }
    if (moved.length > 0) await this.#steps.moveFronts(moved, INDEX_MS);
  }

  async #dropTurns(): Promise<void> {
    for (const requestClass of REQUEST_CLASSES) {
      const front = this.#front[requestClass];
      if (front !== undefined) await this.#steps.dropTurns(requestClass, front);
    }
    this.#front = {};
  }

  #checkFitness(): void {
    const why = this.#options.link.facts?.unfitForJobs ?? null;
    if (why !== null) throw unavailable(`its server is not fit for jobs: ${why}`);
  }

  #known(): Known {
    return { accepted: this.#accepted, takeovers: this.#takeovers };
  }

  /** `asking`: what was known when the store was asked. */
  #heard(epoch: string, accepted: number, asking: Known): void {
    if (epoch !== this.epoch) {
      this.epoch = epoch;
      this.#accepted = accepted;
      this.#takeovers += 1;
    } else if (asking.takeovers === this.#takeovers && accepted < asking.accepted) {
      // Those that wait for replicas have been accepted by none that lacks them.
      if (this.#options.replicas === 0) this.#lost += this.#accepted - accepted;
      this.#accepted = accepted;
      this.#takeovers += 1;
    } else if (asking.takeovers === this.#takeovers) this.#accepted = Math.max(this.#accepted, accepted);
  }

  async #replicate({ id, version }: JobRecord): Promise<void> {
    const { replicas, replicasMs, waitingLink } = this.#options;
    if (replicas === 0 || waitingLink === null) return;
    const reached = await this.#steps.waitForReplicas(waitingLink, id, version, replicas, replicasMs);
    if (reached < replicas)
      throw unavailable(`${reached} of ${replicas} replicas have it; it may be done all the same`);
  }
}

interface Known {
  readonly accepted: number;
  readonly takeovers: number;
}

const newEpoch = (): string => randomBytes(4).toString("hex");
const lifeOf = (job: JobRecord, now: number): number =>
  Math.max(0, (job.expiresAt ?? job.deadlineAt + job.keepMs) - now) + KEPT_BEYOND_MS;
