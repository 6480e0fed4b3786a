import type { FileRecord } from "../../contract/batch.ts";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { PieceOutcome } from "../../coord/files/file-store.ts";
import { UploadForm, type UploadEnd } from "../../decide/batches/upload-form.ts";
import { parseBoundary } from "../../decide/http/multipart-reader.ts";
import type { RequestKey } from "../../access/request-key.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import { headerValue } from "../calls/answer-headers.ts";
import { freeMemory } from "../http/body-memory.ts";
import { bodyLength } from "../http/request-body.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { Jobs } from "../jobs/open-jobs.ts";
import { BodyStream } from "./body-stream.ts";
import { newId, newName, PieceWriter } from "./file-shelf.ts";

export interface UploadsDeps {
  readonly clock: Clock;
  readonly config: () => GatewayConfig;
  readonly jobs: () => Jobs;
  readonly draining: () => boolean;
}

/** Of a form beside its file. */
const FORM_BYTES_MAX = 64 * 1024;
/** Each holds a little memory and a place in the store. */
const UPLOADS_MAX = 32;
/** An upload that nobody ended is forgotten after this. */
const UNFINISHED_MS = 24 * 3_600_000;

/** Files on their way in: each goes to the store as it comes, and is there when it is whole. */
export class Uploads {
  readonly #deps: UploadsDeps;
  #running = 0;

  constructor(deps: UploadsDeps) {
    this.#deps = deps;
  }

  /** The file is durable when this resolves. */
  async take(context: RequestContext, expectsContinue: boolean): Promise<FileRecord> {
    const { clock, config, draining } = this.#deps;
    const { batches, http } = config();
    const boundary = parseBoundary(headerValue(context.req.rawHeaders, "content-type"));
    if (boundary.kind !== "ok")
      throw new YardmasterError(
        "BAD_REQUEST",
        boundary.kind === "bad" ? boundary.why : "an upload is a multipart form",
      );
    const length = bodyLength(context.req.rawHeaders);
    if (typeof length === "number" && length > batches.fileBytesMax + FORM_BYTES_MAX) throw tooLarge(batches);
    if (draining()) throw new YardmasterError("DRAINING", "the gateway is stopping");
    if (this.#running >= UPLOADS_MAX) throw new YardmasterError("QUEUE_FULL", "too many files are on their way in");
    const stream = new BodyStream(context.req, { clock, idleMs: http.bodyIdleMs });
    stream.begin(expectsContinue ? context.res : null);
    this.#running += 1;
    try {
      return await this.#read(stream, boundary.boundary, context.key);
    } finally {
      this.#running -= 1;
      // A refusal takes in what still comes, and throws it away.
      context.req.resumeBody();
    }
  }

  async #read(stream: BodyStream, boundary: string, key: RequestKey): Promise<FileRecord> {
    const shelf = await this.#deps.jobs().batches.shelf();
    const { store } = shelf;
    const now = await store.now();
    const file = unfinished(key, now);
    if ((await shelf.createFile(file)) !== "created")
      throw new YardmasterError("FILES_FULL", "as many files and batches are kept as may be (batches.max_files)");
    try {
      const writer = new PieceWriter(store, file.id, newName(), true);
      const { filename, keepS } = await this.#write(stream, boundary, writer);
      const keepMs = keepS === null ? this.#deps.config().batches.keepMs : keepS * 1_000;
      const whole = { filename, ready: true, bytes: writer.bytes, segments: [writer.segment], expiresAt: now + keepMs };
      const kept = await shelf.changeFile(file.id, (found) => ({ ...found, ...whole }));
      if (kept === undefined) throw new YardmasterError("FILE_UNKNOWN", "the upload took too long");
      return kept;
    } catch (error) {
      // Where the store is away the file goes by its own time.
      await shelf.forget(file.id).catch(() => {});
      throw error;
    }
  }

  async #write(
    stream: BodyStream,
    boundary: string,
    writer: PieceWriter,
  ): Promise<Extract<UploadEnd, { kind: "whole" }>> {
    const { batches } = this.#deps.config();
    let found: Buffer[] = [];
    let bytes = 0;
    // What a stream gave is its reader's to keep.
    const form = new UploadForm(boundary, (piece) => {
      found.push(piece);
      bytes += piece.length;
    });
    for (let chunk = await stream.next(); chunk !== undefined; chunk = await stream.next()) {
      form.push(chunk);
      if (form.why !== undefined) break;
      if (bytes > batches.fileBytesMax) throw tooLarge(batches);
      for (const piece of found) mustBeKept(await writer.write(piece));
      found = [];
      freeMemory(chunk);
    }
    const end = form.end();
    if (end.kind === "invalid") throw new YardmasterError("BAD_REQUEST", end.why);
    mustBeKept(await writer.end());
    return end;
  }
}

const tooLarge = ({ fileBytesMax }: GatewayConfig["batches"]): YardmasterError =>
  new YardmasterError("BODY_TOO_LARGE", `the file is larger than ${fileBytesMax} bytes (batches.max_file_bytes)`);

function mustBeKept(outcome: PieceOutcome): void {
  if (outcome === "bytes")
    throw new YardmasterError(
      "FILES_FULL",
      "as many bytes of files are kept as may be (batches.max_bytes, batches.max_key_bytes)",
    );
  if (outcome === "unknown") throw new YardmasterError("FILE_UNKNOWN", "the upload took too long");
}

const unfinished = (key: RequestKey, now: number): FileRecord => ({
  id: newId("file-"),
  keyId: key.id,
  filename: "",
  purpose: "batch",
  ready: false,
  bytes: 0,
  createdAt: now,
  expiresAt: now + UNFINISHED_MS,
  segments: [],
  heldBy: [],
});
