import type { LineEnd } from "../../decide/batches/answer-line.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import { startThread } from "../../kernel/start-thread.ts";
import { ThreadCalls } from "../../kernel/thread-calls.ts";
import type { AnsweredLines, JudgedFile, LineRequest, ReadingPlan, ReadLines } from "./line-worker.ts";

/** For a piece of a file, on a machine that has much else to do. */
const ANSWER_MS_MAX = 60_000;

export interface FewLines extends Omit<ReadLines, "done" | "packed" | "lengths"> {
  /** Of each line its body as a part of a job, where bodies were wanted. */
  readonly parts: readonly Buffer[];
}

/**
 * Reads batches' files and writes their answers, in a thread of its own that starts with the first of them. A file comes a piece at a
 * time, and the next one is asked for when the last was read, so that of a file of any size a few pieces are in memory.
 */
export class LineReader {
  readonly #thread: ThreadCalls<LineRequest>;
  #ids = 0;

  constructor(clock: Clock) {
    this.#thread = new ThreadCalls({
      clock,
      start: () => startThread("line-worker", import.meta.url, { name: "batches", workerData: null }),
      answerMsMax: ANSWER_MS_MAX,
      fault: (why) => new YardmasterError("INTERNAL", `the batch's lines can't be read: ${why}`),
      closed: "the gateway is stopping",
    });
  }

  async judge(plan: Omit<ReadingPlan, "mode" | "bodyBytesMax">, pieces: AsyncIterable<Buffer>): Promise<JudgedFile> {
    const id = await this.#begin({ ...plan, bodyBytesMax: 0, mode: "judge" });
    try {
      for await (const piece of pieces) await this.#piece(id, piece);
      const judged = await this.#piece<JudgedFile>(id, null);
      if (judged === null) throw new YardmasterError("INTERNAL", "the thread that read the batch's lines ended");
      return judged;
    } finally {
      this.#drop(id);
    }
  }

  /** The first lines of what the pieces hold. */
  async read(plan: ReadingPlan, pieces: AsyncIterable<Buffer>): Promise<FewLines> {
    const id = await this.#begin(plan);
    const lines: ReadLines["lines"][number][] = [];
    const parts: Buffer[] = [];
    let taken = 0;
    const take = (read: ReadLines | null): boolean => {
      if (read === null) throw new YardmasterError("INTERNAL", "the thread that read the batch's lines ended");
      lines.push(...read.lines);
      taken += read.taken;
      let at = 0;
      for (const length of read.lengths) {
        parts.push(Buffer.from(read.packed.buffer, at, length));
        at += length;
      }
      return read.done;
    };
    try {
      for await (const piece of pieces)
        if (take(await this.#piece<ReadLines>(id, piece))) return { lines, parts, taken };
      take(await this.#piece<ReadLines>(id, null));
      return { lines, parts, taken };
    } finally {
      this.#drop(id);
    }
  }

  answer(ends: readonly LineEnd[]): Promise<AnsweredLines> {
    const give = new Set<ArrayBuffer>();
    for (const { bytes } of ends)
      // Memory of its own changes hands; a copy of a large answer would hold up the event loop.
      if (bytes?.buffer instanceof ArrayBuffer && bytes.length === bytes.buffer.byteLength) give.add(bytes.buffer);
    return this.#thread.ask((call) => ({ kind: "answer", call, ends }), [...give]);
  }

  close(): Promise<void> {
    return this.#thread.close((call) => ({ kind: "close", call }));
  }

  async #begin(plan: ReadingPlan): Promise<number> {
    const id = (this.#ids += 1);
    await this.#thread.ask((call) => ({ kind: "begin", call, id, plan }));
    return id;
  }

  #piece<T>(id: number, piece: Buffer | null): Promise<T | null> {
    if (piece === null) return this.#thread.ask((call) => ({ kind: "piece", call, id, bytes: null }));
    // Memory that other things lie in too is not given away.
    const bytes = new Uint8Array(piece);
    return this.#thread.ask((call) => ({ kind: "piece", call, id, bytes }), [bytes.buffer]);
  }

  #drop(id: number): void {
    this.#thread.ask((call) => ({ kind: "drop", call, id })).catch(() => {});
  }
}
