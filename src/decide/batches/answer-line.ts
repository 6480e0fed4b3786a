import type { BatchVoid } from "../../contract/batch.ts";
import { renderErrorBody } from "../../contract/error-body.ts";
import type { JobError, JobPart, JobState } from "../../contract/job.ts";

/** What is known of one line when its chunk is settled. */
export interface LineEnd {
  readonly id: string;
  readonly customId: string;
  /** Undefined: its call has not come to an end. */
  readonly part: JobPart | undefined;
  /** The engine's words, where it had any. */
  readonly bytes: Buffer | undefined;
  /** Of the whole job, for a line without an end of its own; null: the job is gone, or there was none. */
  readonly job: { readonly state: JobState; readonly error: JobError | null } | null;
  /** Why what has no answer by now gets none. */
  readonly void: BatchVoid | null;
}

export type LineFate = "completed" | "failed" | "expired";

export interface AnsweredLine {
  readonly fate: LineFate;
  /** With its end; of the output where it is completed, else of the error file. */
  readonly bytes: Buffer;
}

const WORDS: Readonly<Record<BatchVoid, string>> = {
  batch_cancelled: "This request was not executed because the batch was cancelled.",
  batch_expired: "This request could not be executed before the completion window expired.",
};
const LINE_END = 0x0a;
const BLANK = 0x20;

/** The line of an output or error file, as the OpenAI API has it. */
export function answerLine(end: LineEnd): AnsweredLine {
  const { part, bytes } = end;
  if (part === undefined) return unanswered(end);
  if (part.error === null && part.result !== null)
    return answered(end, "completed", part.result.status, bodyJson(bytes ?? Buffer.alloc(0)), part);
  if (part.result !== null && bytes !== undefined)
    return answered(end, "failed", part.result.status, bodyJson(bytes), part);
  return refused(end, part.error ?? { code: "INTERNAL", message: "the answer was not kept" }, part);
}

/** A line whose call did not end: for the batch's end, or for its job's. */
function unanswered(end: LineEnd): AnsweredLine {
  const reason = end.void ?? (end.job?.state === "cancelled" ? "batch_cancelled" : null);
  if (reason === null) {
    const lost = { code: "JOB_UNKNOWN", message: "the job of this line is not there any more" } as const;
    return refused(end, end.job?.error ?? lost, undefined);
  }
  const line = { id: end.id, custom_id: end.customId, response: null, error: { code: reason, message: WORDS[reason] } };
  return {
    fate: reason === "batch_expired" ? "expired" : "failed",
    bytes: Buffer.from(`${JSON.stringify(line)}\n`),
  };
}

/** The gateway's own no, in the form in which a call would have got it. */
function refused(end: LineEnd, error: JobError, part: JobPart | undefined): AnsweredLine {
  const { status, text } = renderErrorBody(error.code, error.message, { dialect: "openai" });
  return answered(end, "failed", status, Buffer.from(text), part);
}

function answered(end: LineEnd, fate: LineFate, status: number, body: Buffer, part: JobPart | undefined): AnsweredLine {
  const requestId = part?.requestId ?? end.id;
  const head = `{"id":${JSON.stringify(end.id)},"custom_id":${JSON.stringify(end.customId)},"response":{"status_code":${status},"request_id":${JSON.stringify(requestId)},"body":`;
  return { fate, bytes: Buffer.concat([Buffer.from(head), body, Buffer.from('},"error":null}\n')]) };
}

/** JSON as the engine wrote it, on one line; anything else as a text. */
function bodyJson(bytes: Buffer): Buffer {
  const text = bytes.toString("utf8");
  try {
    JSON.parse(text);
  } catch {
    return Buffer.from(JSON.stringify(text));
  }
  // Outside of strings an end of line is a blank, and inside of them JSON has none.
  if (!bytes.includes(LINE_END) && !bytes.includes(0x0d)) return bytes;
  return Buffer.from(bytes.map((byte) => (byte === LINE_END || byte === 0x0d ? BLANK : byte)));
}
