import { parentPort } from "node:worker_threads";
import { YardmasterError, type ErrorCode } from "../../kernel/errors.ts";
import { bodyFingerprint } from "../http/body-fingerprint.ts";
import { parseSubmission, type ParsedSubmission } from "./parse-submission.ts";

/** A body comes in pieces, in order, and is answered once after its end. */
export type SubmissionRequest =
  | { readonly kind: "piece"; readonly id: number; readonly bytes: Uint8Array }
  | { readonly kind: "end"; readonly id: number; readonly wantsFingerprint: boolean };

export type SubmissionReply =
  | {
      readonly kind: "parsed";
      readonly id: number;
      readonly asked: Omit<ParsedSubmission, "blobs">;
      /** All blobs, one behind the other. */
      readonly packed: Uint8Array<ArrayBuffer>;
      readonly lengths: readonly (readonly [name: string, bytes: number])[];
      readonly fingerprint: string | null;
    }
  | { readonly kind: "refused"; readonly id: number; readonly code: ErrorCode; readonly why: string };

/** The thread that reads large submits whole: what takes a second there holds up nobody's stream. */
const port = parentPort;
if (port === null) throw new Error("submission-worker runs as a worker thread only");

const arriving = new Map<number, Uint8Array[]>();

function read(id: number, wantsFingerprint: boolean): SubmissionReply {
  const bytes = Buffer.concat(arriving.get(id) ?? []);
  arriving.delete(id);
  try {
    const fingerprint = wantsFingerprint ? bodyFingerprint([], [bytes], true) : null;
    const { blobs, ...asked } = parseSubmission(bytes);
    const lengths = Array.from(blobs, ([name, blob]) => [name, blob.length] as const);
    const packed = new Uint8Array(lengths.reduce((sum, [, length]) => sum + length, 0));
    let at = 0;
    for (const blob of blobs.values()) {
      packed.set(blob, at);
      at += blob.length;
    }
    return { kind: "parsed", id, asked, packed, lengths, fingerprint };
  } catch (error) {
    if (!(error instanceof YardmasterError)) throw error;
    return { kind: "refused", id, code: error.code, why: error.message };
  }
}

port.on("message", (request: SubmissionRequest) => {
  if (request.kind === "piece") {
    const pieces = arriving.get(request.id) ?? [];
    arriving.set(request.id, pieces);
    pieces.push(request.bytes);
    return;
  }
  const reply = read(request.id, request.wantsFingerprint);
  port.postMessage(reply, reply.kind === "parsed" ? [reply.packed.buffer] : []);
});
