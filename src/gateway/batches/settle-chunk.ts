import type { BatchChunk, BatchRecord, BatchVoid, ChunkResult, FileRecord } from "../../contract/batch.ts";
import type { JobPart } from "../../contract/job.ts";
import type { JobRead, JobStore } from "../../coord/jobs/job-store.ts";
import type { LineEnd } from "../../decide/batches/answer-line.ts";
import { voidReason } from "../../decide/batches/step-batch.ts";
import { newName, PieceWriter, type FileShelf } from "./file-shelf.ts";
import { groupLines } from "./line-groups.ts";
import type { LineReader } from "./line-reader.ts";

export interface SettleDeps {
  readonly shelf: FileShelf;
  readonly jobs: Pick<JobStore, "get" | "parts" | "readPartBytes">;
  readonly reader: Pick<LineReader, "read" | "answer">;
}

export interface SettledChunk {
  readonly result: ChunkResult;
  /** Where the result was not written: its pieces are nobody's. */
  drop(): Promise<void>;
}

/** Answers that are made together; as many bytes of them are in memory, and the one that is more. */
const ANSWERED_LINES = 32;
const ANSWERED_BYTES = 1024 * 1024;

/** Writes what the lines of a chunk came to, in their order, as pieces under a name that nothing else has. */
export async function settleChunk(
  { shelf, jobs, reader }: SettleDeps,
  batch: BatchRecord,
  chunk: BatchChunk,
  input: FileRecord,
  now: number,
): Promise<SettledChunk> {
  const plan = { endpoint: batch.endpoint, linesMax: chunk.lines, lineBytesMax: Number.MAX_SAFE_INTEGER } as const;
  const { lines } = await reader.read(
    { ...plan, bodyBytesMax: Number.MAX_SAFE_INTEGER, mode: "names" },
    shelf.bytes(input, chunk.offset),
  );
  const ends = await findEnds(jobs, chunk, lines);
  const reason = chunk.void ?? voidReason(batch, now);
  const name = newName();
  const output = new PieceWriter(shelf.store, batch.outputFileId, `${name}.out`, false);
  const errors = new PieceWriter(shelf.store, batch.errorFileId, `${name}.err`, false);
  const counts = { completed: 0, failed: 0, expired: 0 };
  let waiting: LineEnd[] = [];
  let waitingBytes = 0;
  const write = async (): Promise<void> => {
    const answered = await reader.answer(waiting);
    for (const fate of answered.fates) {
      counts[fate === "completed" ? "completed" : "failed"] += 1;
      if (fate === "expired") counts.expired += 1;
    }
    // Of a file that is not there any more nobody wants to know.
    await output.write(Buffer.from(answered.output.buffer));
    await errors.write(Buffer.from(answered.errors.buffer));
    waiting = [];
    waitingBytes = 0;
  };
  for (const [index, { customId }] of lines.entries()) {
    const { job, part, jobId } = ends[index] ?? NO_END;
    const bytes =
      jobId !== null && (part?.result ?? null) !== null ? await jobs.readPartBytes(jobId, part?.index ?? 0) : undefined;
    const id = `batch_req_${batch.id.slice("batch_".length)}_${chunk.line + index}`;
    waiting.push({ id, customId, part, bytes, job: job?.job ?? null, void: reason ?? expiredWith(job) });
    waitingBytes += bytes?.length ?? 0;
    if (waiting.length >= ANSWERED_LINES || waitingBytes >= ANSWERED_BYTES) await write();
  }
  await write();
  await output.end();
  await errors.end();
  return {
    result: {
      name,
      outputPieces: output.segment.pieces,
      outputBytes: output.bytes,
      errorPieces: errors.segment.pieces,
      errorBytes: errors.bytes,
      ...counts,
    },
    drop: async () => {
      for (const [fileId, { segment }] of [
        [batch.outputFileId, output],
        [batch.errorFileId, errors],
      ] as const)
        await shelf.store.dropPieces(
          fileId,
          Array.from({ length: segment.pieces }, (_, index) => `${segment.name}.${index}`),
        );
    },
  };
}

interface FoundEnd {
  readonly jobId: string | null;
  readonly job: JobRead | undefined;
  readonly part: JobPart | undefined;
}

const NO_END: FoundEnd = { jobId: null, job: undefined, part: undefined };

/** For each line of the chunk the job that had it, and its part there. */
async function findEnds(
  jobs: SettleDeps["jobs"],
  chunk: BatchChunk,
  lines: readonly { readonly model: string }[],
): Promise<FoundEnd[]> {
  const ends: FoundEnd[] = lines.map(() => NO_END);
  if (chunk.jobs.length === 0) return ends;
  for (const [at, group] of groupLines(lines).entries()) {
    const jobId = chunk.jobs[at];
    if (jobId === undefined) throw new Error("a chunk has fewer jobs than its lines have models");
    const job = await jobs.get(jobId);
    const parts = new Map((job === undefined ? [] : await jobs.parts(jobId)).map((part) => [part.index, part]));
    for (const [place, line] of group.lines.entries()) ends[line] = { jobId, job, part: parts.get(place) };
  }
  return ends;
}

/** A job that ended with its deadline, which is the batch's own, by a clock that may be a little ahead. */
function expiredWith(read: JobRead | undefined): BatchVoid | null {
  if (read?.job.state !== "failed" || read.job.endedAt === null) return null;
  return read.job.endedAt >= read.job.deadlineAt ? "batch_expired" : null;
}
