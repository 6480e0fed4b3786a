import { isUtf8 } from "node:buffer";
import { parentPort } from "node:worker_threads";
import type { BatchProblem } from "../../contract/batch.ts";
import { answerLine, type LineEnd, type LineFate } from "../../decide/batches/answer-line.ts";
import { LineCutter, readLine, type BatchLine, type LineReading } from "../../decide/batches/batch-line.ts";
import { packPart } from "../jobs/part-bytes.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { ThreadReply } from "../../kernel/thread-calls.ts";

/** How a file is read: as a whole to be judged, or a few lines of it to be carried out or answered. */
export interface ReadingPlan {
  readonly endpoint: string;
  /** Requests at most; of a whole file, one more is found. */
  readonly linesMax: number;
  /** Of one line. */
  readonly lineBytesMax: number;
  /** Of the bodies of a few lines; the first line is taken whatever its size. */
  readonly bodyBytesMax: number;
  /** `judge`: problems and models of all lines. `cut`: lines with their bodies. `names`: lines without. */
  readonly mode: "judge" | "cut" | "names";
}

export interface ReadLines {
  readonly lines: readonly Pick<BatchLine, "customId" | "model">[];
  /** Bodies as parts of a job, one behind the other; empty where none were wanted. */
  readonly packed: Uint8Array<ArrayBuffer>;
  readonly lengths: readonly number[];
  /** Bytes of the file that these lines take, with blank ones before them. */
  readonly taken: number;
  /** No more lines are wanted, or there are none. */
  readonly done: boolean;
}

export interface JudgedFile {
  readonly lines: number;
  readonly problems: readonly BatchProblem[];
  /** Each model and the first line that names it. */
  readonly models: readonly (readonly [model: string, line: number])[];
}

export type LineRequest =
  | { readonly kind: "begin"; readonly call: number; readonly id: number; readonly plan: ReadingPlan }
  | { readonly kind: "piece"; readonly call: number; readonly id: number; readonly bytes: Uint8Array | null }
  | { readonly kind: "drop"; readonly call: number; readonly id: number }
  | { readonly kind: "answer"; readonly call: number; readonly ends: readonly LineEnd[] }
  | { readonly kind: "close"; readonly call: number };

export interface AnsweredLines {
  readonly fates: readonly LineFate[];
  readonly output: Uint8Array<ArrayBuffer>;
  readonly errors: Uint8Array<ArrayBuffer>;
}

/** Told of a file; the rest is only counted. */
const PROBLEMS_MAX = 50;
const MODELS_MAX = 1_000;

const port = parentPort;
if (port === null) throw new Error("line-worker runs as a worker thread only");

class Reading {
  readonly #plan: ReadingPlan;
  readonly #cutter: LineCutter;
  readonly #problems: BatchProblem[] = [];
  readonly #models = new Map<string, number>();
  readonly #ids = new Set<string>();
  /** Of the file, blank ones too. */
  #number = 0;
  #lines: Pick<BatchLine, "customId" | "model">[] = [];
  #parts: Buffer[] = [];
  #bodyBytes = 0;
  #count = 0;
  #taken = 0;
  #full = false;

  constructor(plan: ReadingPlan) {
    this.#plan = plan;
    this.#cutter = new LineCutter(plan.lineBytesMax);
  }

  /** Null: the file's end. */
  take(bytes: Uint8Array | null): ReadLines | JudgedFile | null {
    const cut = bytes === null ? this.#cutter.end() : this.#cutter.push(bufferOf(bytes));
    for (const [line, taken] of cut) {
      if (this.#full) break;
      this.#number += 1;
      this.#line(line, taken);
    }
    if (this.#plan.mode === "judge") return bytes === null ? this.#judged() : null;
    const packed = packTogether(this.#parts);
    const lengths = this.#parts.map(({ length }) => length);
    const read = { lines: this.#lines, packed, lengths, taken: this.#taken, done: this.#full || bytes === null };
    this.#lines = [];
    this.#parts = [];
    this.#taken = 0;
    return read;
  }

  #line(bytes: Buffer | null, taken: number): void {
    const { mode, endpoint, linesMax, bodyBytesMax } = this.#plan;
    const reading =
      bytes === null
        ? bad("line_too_long", "the line is too long")
        : isUtf8(bytes)
          ? readLine(bytes, endpoint)
          : bad("invalid_json_line", "the line is not UTF-8");
    if (reading.kind === "blank") {
      this.#taken += taken;
      return;
    }
    if (mode === "judge") return this.#judge(reading);
    // What was judged once is read the same again; a line that is not is of a file that was changed, which none is.
    if (reading.kind === "bad" || bytes === null) throw new Error("a line can't be read that could be before");
    const { customId, model, bodyStart, bodyEnd } = reading.line;
    if (this.#count >= linesMax || (this.#count > 0 && this.#bodyBytes + bodyEnd - bodyStart > bodyBytesMax)) {
      this.#full = true;
      return;
    }
    this.#count += 1;
    this.#taken += taken;
    this.#bodyBytes += bodyEnd - bodyStart;
    this.#lines.push({ customId, model });
    if (mode === "cut") this.#parts.push(packPart(undefined, bytes.subarray(bodyStart, bodyEnd)));
    if (this.#count === linesMax) this.#full = true;
  }

  #judge(reading: Exclude<ReturnType<typeof readLine>, { kind: "blank" }>): void {
    this.#count += 1;
    if (this.#count > this.#plan.linesMax) {
      this.#full = true;
      return;
    }
    if (reading.kind === "bad") return this.#problem(reading.problem);
    const { customId, model } = reading.line;
    if (this.#ids.has(customId))
      this.#problem({
        code: "duplicate_custom_id",
        message: "an earlier line has this custom_id",
        param: "custom_id",
      });
    this.#ids.add(customId);
    if (this.#models.has(model)) return;
    if (this.#models.size === MODELS_MAX)
      this.#problem({
        code: "too_many_models",
        message: `the lines name more than ${MODELS_MAX} models`,
        param: "body.model",
      });
    else this.#models.set(model, this.#number);
  }

  #problem(problem: Omit<BatchProblem, "line">): void {
    if (this.#problems.length < PROBLEMS_MAX) this.#problems.push({ ...problem, line: this.#number });
  }

  #judged(): JudgedFile {
    const { linesMax } = this.#plan;
    const whole = (code: string, message: string): BatchProblem => ({ code, message, param: null, line: null });
    if (this.#count === 0) this.#problems.push(whole("empty_file", "the file has no requests"));
    if (this.#count > linesMax)
      this.#problems.push(whole("too_many_tasks", `the file has more than ${linesMax} requests (batches.max_lines)`));
    return { lines: this.#count, problems: this.#problems, models: [...this.#models] };
  }
}

const bad = (code: string, message: string): Extract<LineReading, { kind: "bad" }> => ({
  kind: "bad",
  problem: { code, message, param: null },
});

const bufferOf = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

function packTogether(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const packed = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    packed.set(part, at);
    at += part.length;
  }
  return packed;
}

/** The thread that reads what batches are made of, and writes what they come to: JSON of any size there holds up nobody's stream. */
const readings = new Map<number, Reading>();

function answer(request: LineRequest): unknown {
  switch (request.kind) {
    case "begin":
      readings.set(request.id, new Reading(request.plan));
      return null;
    case "piece":
      return readings.get(request.id)?.take(request.bytes) ?? null;
    case "drop":
      return readings.delete(request.id);
    case "answer": {
      const lines = request.ends.map((end) =>
        answerLine({ ...end, bytes: end.bytes === undefined ? undefined : bufferOf(end.bytes) }),
      );
      const of = (completed: boolean): Uint8Array<ArrayBuffer> =>
        packTogether(lines.filter(({ fate }) => (fate === "completed") === completed).map(({ bytes }) => bytes));
      return { fates: lines.map(({ fate }) => fate), output: of(true), errors: of(false) } satisfies AnsweredLines;
    }
    default:
      return null;
  }
}

/** Memory that was made for the answer changes hands. */
function given(value: unknown): ArrayBuffer[] {
  const found: ArrayBuffer[] = [];
  for (const each of typeof value === "object" && value !== null ? Object.values(value) : [])
    if (each instanceof Uint8Array && each.buffer instanceof ArrayBuffer) found.push(each.buffer);
  return found;
}

port.on("message", (request: LineRequest) => {
  let reply: ThreadReply;
  try {
    reply = { kind: "done", call: request.call, value: answer(request) };
  } catch (error) {
    reply = { kind: "failed", call: request.call, why: messageOf(error) };
  }
  port.postMessage(reply, reply.kind === "done" ? given(reply.value) : []);
  if (request.kind === "close") port.close();
});
