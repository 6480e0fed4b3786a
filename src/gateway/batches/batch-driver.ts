import { isOver, type BatchProblem, type BatchRecord, type BatchVoid, type FileRecord } from "../../contract/batch.ts";
import { isOpen } from "../../contract/job.ts";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import {
  nextAction,
  stepBatch,
  voidReason,
  type BatchAction,
  type BatchEvent,
} from "../../decide/batches/step-batch.ts";
import { idempotencyScope } from "../../decide/idempotency/idempotency-key.ts";
import type { JobAsk } from "../../decide/jobs/new-job.ts";
import type { FileShelf, Held } from "./file-shelf.ts";
import type { FewLines, LineReader } from "./line-reader.ts";
import { groupLines } from "./line-groups.ts";
import { settleChunk } from "./settle-chunk.ts";

export interface BatchDriverDeps {
  readonly shelf: FileShelf;
  readonly jobs: Pick<JobStore, "submit" | "get" | "parts" | "readPartBytes" | "change">;
  readonly reader: Pick<LineReader, "judge" | "read" | "answer">;
  /** Names this process among drivers. */
  readonly token: string;
  /** In the embedded store a lease is of a process that has ended: nobody else has the file. */
  readonly alone: boolean;
  readonly leaseMs: () => number;
  readonly attemptsMax: () => number;
  readonly linesMax: () => number;
  readonly lineBytesMax: () => number;
  /** What is wrong with a model for this key; null: nothing. Undefined: nobody knows yet which models there are. */
  readonly judgeModel: (batch: BatchRecord, model: string) => Omit<BatchProblem, "line"> | null | undefined;
  readonly cancelJob: (id: string, by: string) => Promise<void>;
  readonly onOver: (batch: BatchRecord) => void;
  readonly stopped: () => boolean;
}

/** Lines of one chunk, so that a part's end is found among few, and a claim that is lost costs little. */
export const CHUNK_LINES = 200;
const CHUNK_BYTES = 4 * 1024 * 1024;
/** Chunks of one batch that are with the jobs at once; what they hold of a store is bounded by it. */
export const OPEN_CHUNKS_MAX = 8;

export type DriveEnd =
  | { readonly kind: "over" }
  /** Somebody else drives it. */
  | { readonly kind: "taken" }
  /** To be driven again when one of these jobs has changed, or in a while. */
  | { readonly kind: "waits"; readonly jobs: readonly string[] };

const OVER: DriveEnd = { kind: "over" };
const LATER: DriveEnd = { kind: "waits", jobs: [] };

/**
 * Drives batches: reads where one stands, does the next thing, and writes that down over the version that it read. Whatever is done
 * before it is written down may be done again: jobs are found again under their idempotency keys, and pieces that nobody named in the
 * batch's record are in no file.
 *
 * Invariants:
 *   D1. All choices are made by `nextAction` and `stepBatch`; a crash between any two steps is the same as one before the first.
 *   D2. A line's answer is in the output or the error file once: by the one settling of its chunk that was written.
 *   D3. Jobs of a chunk are forgotten only after its settling is written.
 */
export class BatchDriver {
  readonly #deps: BatchDriverDeps;

  constructor(deps: BatchDriverDeps) {
    this.#deps = deps;
  }

  /** Goes on with the batch until it is over or waits. */
  async drive(id: string): Promise<DriveEnd> {
    for (;;) {
      const held = await this.#deps.shelf.batch(id);
      if (held === undefined || isOver(held.record.state)) return OVER;
      const now = await this.#deps.shelf.store.now();
      if (this.#deps.stopped()) {
        await this.#apply(held, { kind: "leave", token: this.#deps.token }, now);
        return LATER;
      }
      const lease = await this.#hold(held, now);
      if (lease === "taken") return { kind: "taken" };
      if (lease === "again") continue;
      const over = await this.#overJobs(held.record);
      const action = nextAction(held.record, now, over, OPEN_CHUNKS_MAX);
      const end = await this.#act(held, action, now);
      if (end !== null) return end;
    }
  }

  async #hold({ record, version }: Held<BatchRecord>, now: number): Promise<"mine" | "taken" | "again"> {
    const { token, alone } = this.#deps;
    const leaseMs = this.#deps.leaseMs();
    const { driver } = record;
    if (driver?.token === token && driver.until - now > leaseMs / 2) return "mine";
    if (driver !== null && driver.token !== token && driver.until > now && !alone) return "taken";
    await this.#apply({ record, version }, { kind: "drive", token, leaseMs }, now);
    return "again";
  }

  async #overJobs(batch: BatchRecord): Promise<Set<string>> {
    const over = new Set<string>();
    for (const id of batch.open.flatMap(({ jobs }) => jobs)) {
      const read = await this.#deps.jobs.get(id);
      if (read === undefined || !isOpen(read.job.state)) over.add(id);
    }
    return over;
  }

  /** Null: to be gone on with at once. */
  async #act(held: Held<BatchRecord>, action: BatchAction, now: number): Promise<DriveEnd | null> {
    const { record } = held;
    switch (action.kind) {
      case "none":
        return OVER;
      case "wait":
        return { kind: "waits", jobs: record.open.flatMap(({ jobs }) => jobs) };
      case "validate":
        return this.#validate(held);
      case "stopJobs":
        for (const id of action.jobs) await this.#deps.cancelJob(id, record.keyId);
        return null;
      case "settle": {
        const input = await this.#inputOf(record);
        const settled = await settleChunk(this.#deps, record, action.chunk, input, now);
        if (await this.#apply(held, { kind: "settle", index: action.chunk.index, result: settled.result }, now))
          for (const id of action.chunk.jobs) await this.#deps.jobs.change(id, { kind: "forget" });
        else await settled.drop();
        return null;
      }
      case "feed":
        return this.#feed(held, action.void, now);
      case "finalize":
        await this.#apply(held, { kind: "finalize" }, now);
        return null;
      case "publish":
        await this.#publish(record, now);
        if (await this.#apply(held, { kind: "end" }, now)) await this.#release(record);
        return null;
      default:
        return action satisfies never;
    }
  }

  async #validate(held: Held<BatchRecord>): Promise<DriveEnd | null> {
    const { reader, shelf, linesMax, judgeModel } = this.#deps;
    const { record } = held;
    const whole = (code: string, message: string): BatchProblem => ({ code, message, param: null, line: null });
    const input = await shelf.file(record.inputFileId);
    if (input === undefined) return this.#reject(held, [whole("file_not_found", "the input file is not there")]);
    const judged = await reader.judge(
      { endpoint: record.endpoint, linesMax: linesMax(), lineBytesMax: this.#deps.lineBytesMax() },
      this.#leased(record.id, shelf.bytes(input.record)),
    );
    const problems = [...judged.problems];
    for (const [model, line] of judged.models) {
      const problem = judgeModel(record, model);
      if (problem === undefined) return LATER;
      if (problem !== null) problems.push({ ...problem, line });
    }
    if (problems.length > 0)
      return this.#reject(
        held,
        problems.toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0)),
      );
    for (const id of [record.outputFileId, record.errorFileId]) {
      const outcome = await shelf.createFile(answerFile(record, id));
      if (outcome !== "created") return LATER;
    }
    await this.#applyAnew(record.id, { kind: "accept", total: judged.lines });
    return null;
  }

  /** Reading a large file takes longer than a lease lasts. */
  async *#leased(id: string, pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
    const { shelf, token } = this.#deps;
    const leaseMs = this.#deps.leaseMs();
    let until = (await shelf.store.now()) + leaseMs / 2;
    for await (const piece of pieces) {
      const now = await shelf.store.now();
      if (now > until) {
        await this.#applyAnew(id, { kind: "drive", token, leaseMs });
        until = now + leaseMs / 2;
      }
      yield piece;
    }
  }

  async #reject({ record }: Held<BatchRecord>, problems: readonly BatchProblem[]): Promise<null> {
    if (await this.#applyAnew(record.id, { kind: "reject", problems })) await this.#release(record);
    return null;
  }

  async #feed(held: Held<BatchRecord>, reason: BatchVoid | null, now: number): Promise<DriveEnd | null> {
    const { record } = held;
    const { line, offset } = record.cursor;
    const read = await this.#deps.reader.read(
      {
        endpoint: record.endpoint,
        linesMax: CHUNK_LINES,
        // What was judged is taken as it is, also where the settings are others by now.
        lineBytesMax: Number.MAX_SAFE_INTEGER,
        bodyBytesMax: CHUNK_BYTES,
        mode: reason === null ? "cut" : "names",
      },
      this.#deps.shelf.bytes(await this.#inputOf(record), offset),
    );
    const jobs = reason === null ? await this.#submit(record, read, now) : [];
    if (jobs === "full") return { kind: "waits", jobs: record.open.flatMap((chunk) => chunk.jobs) };
    const chunk = { offset, bytes: read.taken, line, lines: read.lines.length, jobs, void: reason };
    if (await this.#apply(held, { kind: "feed", chunk }, now)) return null;
    // Where the batch was called off meanwhile, nobody will look for these jobs under their keys.
    const found = await this.#deps.shelf.batch(record.id);
    if (found === undefined || voidReason(found.record, now) !== null)
      for (const id of jobs) await this.#deps.cancelJob(id, record.keyId);
    return null;
  }

  /** The lines as jobs, one for each model. Submitted again they are the same jobs. */
  async #submit(batch: BatchRecord, read: FewLines, now: number): Promise<string[] | "full"> {
    const ids: string[] = [];
    const first = batch.cursor.line;
    for (const { model, lines } of groupLines(read.lines)) {
      const parts = lines.map((index) => read.parts[index] ?? Buffer.alloc(0));
      const ask: JobAsk = {
        keyId: batch.keyId,
        weight: batch.weight,
        allowExternal: batch.allowExternal,
        class: "batch",
        model,
        upstream: null,
        method: "POST",
        path: batch.endpoint,
        contentType: "application/json",
        parts: parts.length,
        allowPartial: true,
        batch: batch.id,
        onShed: "requeue",
        metadata: { batch: batch.id, first_line: first + (lines[0] ?? 0) },
        idempotency: {
          scope: idempotencyScope(batch.keyId, "/v1/batches", `${batch.id}.${first}.${model}`),
          fingerprint: `${batch.id}.${first}`,
        },
        keepMs: batch.keepMs,
        attemptsMax: this.#deps.attemptsMax(),
        bodyBytes: parts.reduce((sum, { length }) => sum + length, 0),
        callbackUrl: null,
        deadlineMs: Math.max(1, batch.expiresAt - now),
      };
      const blobs = new Map(parts.map((bytes, index) => [`body/${index}`, bytes] as const));
      const outcome = await this.#deps.jobs.submit(ask, blobs);
      if (outcome.kind === "full") return "full";
      if (outcome.kind === "mismatch") throw new Error(`the jobs of ${batch.id} stand under another's key`);
      ids.push(outcome.job.id);
    }
    return ids;
  }

  /** Shows what the lines came to as files; told again it changes nothing. */
  async #publish(batch: BatchRecord, now: number): Promise<void> {
    const { shelf } = this.#deps;
    const results = batch.settled.filter((result) => result !== null);
    const files = [
      { id: batch.outputFileId, suffix: "out", of: (r: (typeof results)[number]) => [r.outputPieces, r.outputBytes] },
      { id: batch.errorFileId, suffix: "err", of: (r: (typeof results)[number]) => [r.errorPieces, r.errorBytes] },
    ] as const;
    for (const { id, suffix, of } of files) {
      const bytes = results.reduce((sum, result) => sum + (of(result)[1] ?? 0), 0);
      if (bytes === 0) {
        await shelf.forget(id);
        continue;
      }
      const segments = results.flatMap((result) => {
        const pieces = of(result)[0] ?? 0;
        return pieces === 0 ? [] : [{ name: `${result.name}.${suffix}`, pieces }];
      });
      const expiresAt = now + batch.outputKeepMs;
      await shelf.changeFile(id, (file) => (file.ready ? null : { ...file, ready: true, bytes, segments, expiresAt }));
    }
  }

  /** The input may be deleted again. Where this is not reached, whoever deletes it finds that the batch is over. */
  async #release(batch: BatchRecord): Promise<void> {
    await this.#deps.shelf.changeFile(batch.inputFileId, (file) =>
      file.heldBy.includes(batch.id) ? { ...file, heldBy: file.heldBy.filter((id) => id !== batch.id) } : null,
    );
  }

  async #inputOf(batch: BatchRecord): Promise<FileRecord> {
    const input = await this.#deps.shelf.file(batch.inputFileId);
    if (input === undefined) throw new Error(`the input of ${batch.id} is not there`);
    return input.record;
  }

  /** Over whatever version there is now. */
  async #applyAnew(id: string, event: BatchEvent): Promise<boolean> {
    for (;;) {
      const held = await this.#deps.shelf.batch(id);
      if (held === undefined) return false;
      const now = await this.#deps.shelf.store.now();
      if (stepBatch(held.record, event, now).kind !== "moved") return false;
      if (await this.#apply(held, event, now)) return true;
    }
  }

  /** False: somebody else has changed the batch, or the event does not fit it. */
  async #apply(held: Pick<Held<BatchRecord>, "record" | "version">, event: BatchEvent, now: number): Promise<boolean> {
    const step = stepBatch(held.record, event, now);
    if (step.kind !== "moved") return false;
    if (!(await this.#deps.shelf.writeBatch(step.batch, held.version))) return false;
    if (isOver(step.batch.state)) this.#deps.onOver(step.batch);
    return true;
  }
}

function answerFile(batch: BatchRecord, id: string): FileRecord {
  const what = id === batch.outputFileId ? "output" : "error";
  return {
    id,
    keyId: batch.keyId,
    filename: `${batch.id}_${what}.jsonl`,
    purpose: "batch_output",
    ready: false,
    bytes: 0,
    createdAt: batch.createdAt,
    expiresAt: batch.expiresAt + 2 * batch.keepMs,
    segments: [],
    heldBy: [],
  };
}
