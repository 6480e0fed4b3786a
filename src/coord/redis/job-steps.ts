import type { JobPart, JobRecord } from "../../contract/job.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { ClaimWish } from "../../decide/jobs/plan-claims.ts";
import { type JobBlobs, type JobRead, type JobStoreLimits, unavailable } from "../jobs/job-store.ts";
import type { JobKeys } from "./job-keys.ts";
import { itemsOf, type Argument, type Reply } from "./redis-connection.ts";
import type { RedisLink, StepOptions, StepOutcome } from "./redis-link.ts";
import { loadScript, type Script } from "./script.ts";
import { whyNothing } from "./step-answer.ts";

const script = (name: string): Script => loadScript(new URL(`./${name}.lua`, import.meta.url));
const APPLY = script("apply-job");
const PREPARE = script("prepare-job");
const SUBMIT = script("submit-job");
const READ = script("read-job");
const DUE = script("due-jobs");
const READY = script("ready-jobs");
const PART = script("part-job");

/** Bytes of at least so many go on a way of their own: on the one that slots are asked for on everything would wait behind them. */
const LARGE_BYTES = 64 * 1024;
/** Bytes on the way get time beside the step's own. */
const BYTES_PER_MS = 20_000;
/** For changes of jobs that were accepted: nobody's request waits for them, and giving up costs an attempt. */
const PATIENT_MS = 1_000;

export interface JobWrite {
  readonly id: string;
  readonly from: JobRecord;
  /** Null: forgotten. */
  readonly to: JobRecord | null;
  /** Undefined: the job is taken out there. */
  readonly indexes: readonly (readonly [index: string, score: number | undefined])[];
  readonly keepMs: number;
  readonly indexMs: number;
  readonly result: Buffer | undefined;
  /** Nobody needs to be told. */
  readonly quiet: boolean;
}

export interface JobSubmit {
  readonly scope: string | null;
  readonly named: string;
  readonly limits: JobStoreLimits;
  readonly indexes: ReadonlyMap<string, number>;
  readonly keepMs: number;
  readonly indexMs: number;
}

/** The scripts and commands of jobs, each as one step, with its reply read. A step that does not get its reply throws JOB_STORE_UNAVAILABLE. */
export class JobSteps {
  readonly #link: RedisLink;
  readonly #bytesLink: RedisLink;
  readonly #keys: JobKeys;
  /** Server time less ours, of the last reply, to tell a script until when it may act. */
  #lastNow = 0;

  constructor(link: RedisLink, bytesLink: RedisLink, keys: JobKeys) {
    this.#link = link;
    this.#bytesLink = bytesLink;
    this.#keys = keys;
  }

  async prepare(
    requestClass: RequestClass,
    keyId: string,
    scope: string | null,
    newEpoch: string,
    indexMs: number,
  ): Promise<{
    readonly now: number;
    readonly epoch: string;
    readonly named: string;
    readonly front: number;
    readonly last: number | undefined;
    readonly seq: number;
    /** Jobs that there ever were. */
    readonly accepted: number;
  }> {
    const { epoch, fronts, counter, totals } = this.#keys;
    const keys = [epoch, this.#scopeKey(scope), fronts, this.#keys.turns(requestClass), counter, totals];
    const reply = texts(await this.#run(PREPARE, keys, [newEpoch, requestClass, keyId, indexMs]));
    const [now = "0", stored = "", named = "", front = "", last = "", seq = "0", accepted = "0"] = reply;
    this.#lastNow = Number(now);
    return {
      now: Number(now),
      epoch: stored,
      named,
      front: Number(front),
      last: last === "" ? undefined : Number(last),
      seq: Number(seq),
      accepted: Number(accepted),
    };
  }

  async submit(
    job: JobRecord,
    blobs: JobBlobs,
    submit: JobSubmit,
  ): Promise<{
    readonly said: string;
    /** Jobs that there ever were, with this one. */
    readonly accepted: number;
  }> {
    const { scope, named, limits, indexes, keepMs, indexMs } = submit;
    const k = this.#keys;
    const bytes = bytesOf(blobs);
    const timeoutMs = this.#link.settings.timeoutMs + Math.ceil(bytes / BYTES_PER_MS);
    const keys = [k.job(job.id), k.bytes(job.id), k.sizes, k.totals, k.epoch, this.#scopeKey(scope), k.all];
    const args: Argument[] = [job.id, JSON.stringify(job), this.#lastNow + timeoutMs, job.id.split("_")[1] ?? ""];
    args.push(named, scope === null ? "" : "1", limits.jobsMax, limits.bytesMax, keepMs, indexMs);
    args.push(job.keyId, job.order, k.channel, indexes.size, ...indexes.values());
    for (const [name, bytes] of blobs) args.push(name, bytes);
    const reply = await this.#run(SUBMIT, [...keys, k.turns(job.class), ...indexes.keys()], args, { timeoutMs }, bytes);
    if (!Array.isArray(reply)) return { said: String(reply), accepted: 0 };
    const [said = "", accepted = "0"] = texts(reply);
    return { said, accepted: Number(accepted) };
  }

  /** `evenIfOpen`: for work that was accepted, which goes on where a request would be refused at once. */
  async read(id: string, evenIfOpen = false): Promise<JobRead | undefined> {
    return (await this.find(id, evenIfOpen)).read;
  }

  /** With the life of the store that was looked in, "" where it has none yet. */
  async find(id: string, evenIfOpen = false): Promise<{ readonly read: JobRead | undefined; readonly epoch: string }> {
    const keys = [this.#keys.job(id), this.#keys.parts(id), this.#keys.epoch];
    const reply = texts(await this.#run(READ, keys, [], { timeoutMs: PATIENT_MS, evenIfOpen }));
    const [now = "0", record = "", parts = "0", epoch = ""] = reply;
    if (record === "") return { read: undefined, epoch };
    return { read: { job: JSON.parse(record) as JobRecord, partsDone: Number(parts), now: Number(now) }, epoch };
  }

  /** False: the job is no longer what it was. Taken also when the server's memory is full, since it lets work end. */
  async apply(write: JobWrite): Promise<boolean> {
    const { id, from, to, indexes, result } = write;
    const k = this.#keys;
    const keys = [k.job(id), k.bytes(id), k.parts(id), k.sizes, k.totals, ...indexes.map(([index]) => index)];
    const args: Argument[] = [id, from.version, to?.version ?? 0, to === null ? "" : JSON.stringify(to)];
    args.push(to?.claim?.token ?? "", write.keepMs, write.indexMs, result === undefined ? "" : "result", result ?? "");
    args.push(write.quiet ? "" : k.channel, ...indexes.map(([, score]) => score ?? ""));
    const timeoutMs = PATIENT_MS + Math.ceil((result?.length ?? 0) / BYTES_PER_MS);
    return (await this.#run(APPLY, keys, args, { timeoutMs, evenIfOpen: true }, result?.length)) === 1;
  }

  async writePart(id: string, token: string, part: JobPart, bytes: Buffer | null): Promise<boolean> {
    const k = this.#keys;
    const name = bytes === null ? "" : partName(part.index);
    const args = [id, token, part.index, JSON.stringify(part), name, bytes ?? "", k.channel];
    const timeoutMs = PATIENT_MS + Math.ceil((bytes?.length ?? 0) / BYTES_PER_MS);
    const keys = [k.job(id), k.bytes(id), k.parts(id), k.sizes, k.totals];
    return (await this.#run(PART, keys, args, { timeoutMs, evenIfOpen: true }, bytes?.length)) === 1;
  }

  async parts(id: string): Promise<JobPart[]> {
    const found = texts(await this.#command("HVALS", [this.#keys.parts(id)]));
    return found.map((text) => JSON.parse(text) as JobPart).sort((a, b) => a.index - b.index);
  }

  async readBytes(id: string, name: string): Promise<Buffer | undefined> {
    const reply = await this.#command(
      "HGET",
      [this.#keys.bytes(id), name],
      { buffers: true, timeoutMs: 5_000 },
      this.#bytesLink,
    );
    return Buffer.isBuffer(reply) ? reply : undefined;
  }

  async due(
    indexes: readonly string[],
    newEpoch: string,
    epochMs: number,
    limit: number,
  ): Promise<{ readonly epoch: string; readonly accepted: number; readonly ids: readonly string[] }> {
    const keys = [this.#keys.epoch, this.#keys.totals, ...indexes];
    const reply = texts(await this.#run(DUE, keys, [newEpoch, epochMs, limit], PATIENTLY));
    const [, epoch = "", accepted = "0", ...ids] = reply;
    return { epoch, accepted: Number(accepted), ids };
  }

  /** For each wish the jobs that could be claimed, the first first. */
  async ready(wishes: readonly ClaimWish[]): Promise<string[][]> {
    const asked = wishes.flatMap((wish, index) =>
      wish.lanes.map((lane) => ({
        index,
        key: this.#keys.ready(wish.class, lane),
        max: wish.fromEnd === true ? -wish.max : wish.max,
      })),
    );
    const reply = texts(
      await this.#run(
        READY,
        asked.map(({ key }) => key),
        asked.map(({ max }) => max),
        PATIENTLY,
      ),
    );
    const found = wishes.map((): { readonly id: string; readonly place: number }[] => []);
    for (let i = 0; i + 2 < reply.length; i += 3) {
      const index = asked[Number(reply[i]) - 1]?.index ?? 0;
      found[index]?.push({ id: reply[i + 1] ?? "", place: Number(reply[i + 2]) });
    }
    return found.map((jobs, index) =>
      jobs
        .sort((a, b) => (wishes[index]?.fromEnd === true ? b.place - a.place : a.place - b.place))
        .slice(0, wishes[index]?.max)
        .map(({ id }) => id),
    );
  }

  async newest(index: string, before: number | null, limit: number): Promise<string[]> {
    const from = before === null ? "+inf" : `(${before}`;
    return texts(await this.#command("ZRANGE", [index, from, "-inf", "BYSCORE", "REV", "LIMIT", 0, limit]));
  }

  async moveFronts(fronts: readonly (readonly [string, number])[], keepMs: number): Promise<void> {
    await this.#command("ZADD", [this.#keys.fronts, "GT", ...fronts.flatMap(([name, place]) => [place, name])]);
    await this.#command("PEXPIRE", [this.#keys.fronts, keepMs]);
  }

  async dropTurns(requestClass: RequestClass, front: number): Promise<void> {
    await this.#command("ZREMRANGEBYSCORE", [this.#keys.turns(requestClass), "-inf", front]);
  }

  async dropFromIndexes(id: string, indexes: readonly string[]): Promise<void> {
    for (const index of indexes) await this.#command("ZREM", [index, id]);
    const bytes = await this.#command("ZSCORE", [this.#keys.sizes, id]);
    if (typeof bytes !== "string" || (await this.#command("ZREM", [this.#keys.sizes, id])) !== 1) return;
    await this.#command("HINCRBY", [this.#keys.totals, "bytes", -Number(bytes)]);
    await this.#command("ZREM", [this.#keys.all, id]);
  }

  async cardinalities(keys: readonly string[]): Promise<number[]> {
    return Promise.all(keys.map(async (key) => Number(await this.#command("ZCARD", [key]))));
  }

  async totalBytes(key: string): Promise<number> {
    return Number((await this.#command("HGET", [key, "bytes"])) ?? 0);
  }

  /**
   * How many replicas have a change of a job: a later write on another connection is behind it in the same stream. 0 where the
   * server that was waited for is not the one that had it: between the two steps another may have taken its place.
   */
  async waitForReplicas(link: RedisLink, id: string, version: number, count: number, ms: number): Promise<number> {
    await this.#command("PEXPIRE", [this.#keys.counter, 86_400_000 * 45], { timeoutMs: ms }, link);
    const reached = Number(await this.#command("WAIT", [count, ms], { timeoutMs: 2 * ms }, link));
    const there = Number(await this.#command("HGET", [this.#keys.job(id), "v"], { timeoutMs: ms }, link));
    return there >= version ? reached : 0;
  }

  #scopeKey(scope: string | null): string {
    return this.#keys.idempotency(scope ?? "none");
  }

  #run(
    what: Script,
    keys: readonly string[],
    args: readonly Argument[],
    options?: StepOptions,
    bytes = 0,
  ): Promise<Reply> {
    const link = bytes < LARGE_BYTES ? this.#link : this.#bytesLink;
    return link.run(what, keys, args, options).then(replyOf);
  }

  #command(
    name: string,
    args: readonly Argument[],
    options: StepOptions = PATIENTLY,
    link = this.#link,
  ): Promise<Reply> {
    return link.command(name, args, options).then(replyOf);
  }
}

/** Under which a part's bytes are kept. */
export const partName = (index: number): string => `part/${index}`;

const PATIENTLY: StepOptions = { timeoutMs: PATIENT_MS };

const bytesOf = (blobs: JobBlobs): number => [...blobs.values()].reduce((sum, bytes) => sum + bytes.length, 0);

function replyOf(outcome: StepOutcome): Reply {
  if (outcome.kind === "reply") return outcome.reply;
  throw unavailable(whyNothing(outcome).slice(0, 200));
}

const texts = (reply: Reply): string[] => itemsOf(reply).map((each) => String(each ?? ""));
