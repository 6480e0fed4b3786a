import type { BatchProblem } from "../../contract/batch.ts";
import { JsonTopScan, stringField, type JsonField } from "../http/json-scan.ts";

/** One request of a batch's input. */
export interface BatchLine {
  readonly customId: string;
  readonly model: string;
  /** Where its body stands in the line, as it is sent on. */
  readonly bodyStart: number;
  readonly bodyEnd: number;
}

export type LineReading =
  | { readonly kind: "line"; readonly line: BatchLine }
  | { readonly kind: "blank" }
  | { readonly kind: "bad"; readonly problem: Omit<BatchProblem, "line"> };

export const CUSTOM_ID_CHARS_MAX = 512;
const MODEL_CHARS_MAX = 256;
const UTF8_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const KNOWN = ["custom_id", "method", "url", "body"] as const;

const bad = (code: string, message: string, param: string | null = null): LineReading => ({
  kind: "bad",
  problem: { code, message, param },
});

/**
 * Reads one line without its end. The body is not taken apart: it goes to the engine as it stands, and whatever names its model
 * twice is refused, since the engine could believe the other one. A mark of UTF-8 before it, which some editors and shells write at
 * the start of a file, is no part of it.
 */
export function readLine(bytes: Buffer, endpoint: string): LineReading {
  if (!bytes.subarray(0, UTF8_MARK.length).equals(UTF8_MARK)) return readMarkless(bytes, endpoint);
  const reading = readMarkless(bytes.subarray(UTF8_MARK.length), endpoint);
  if (reading.kind !== "line") return reading;
  const { bodyStart, bodyEnd } = reading.line;
  return {
    kind: "line",
    line: { ...reading.line, bodyStart: bodyStart + UTF8_MARK.length, bodyEnd: bodyEnd + UTF8_MARK.length },
  };
}

function readMarkless(bytes: Buffer, endpoint: string): LineReading {
  if (isBlank(bytes)) return { kind: "blank" };
  const scan = new JsonTopScan(KNOWN);
  scan.push(bytes);
  const found = scan.end();
  if (found.kind === "invalid")
    return bad("invalid_json_line", `the line is no JSON object that can be read: ${found.why}`);
  const { fields } = found;
  const customId = stringField(fields, "custom_id");
  if (customId === undefined || customId === "") return missing(fields, "custom_id", "a string that names the line");
  if (customId.length > CUSTOM_ID_CHARS_MAX)
    return bad("invalid_custom_id", `custom_id is longer than ${CUSTOM_ID_CHARS_MAX} characters`, "custom_id");
  const method = stringField(fields, "method");
  if (method === undefined) return missing(fields, "method", "`POST`");
  if (method !== "POST") return bad("invalid_method", "method: use POST", "method");
  const url = stringField(fields, "url");
  if (url === undefined) return missing(fields, "url", `the batch's endpoint, ${endpoint}`);
  if (url !== endpoint) return bad("mismatched_endpoint", `url is not the batch's endpoint, ${endpoint}`, "url");
  const body = fields.get("body");
  return body === undefined ? missing(fields, "body", "the request") : readBody(bytes, customId, body);
}

function readBody(bytes: Buffer, customId: string, { start, end }: JsonField): LineReading {
  const scan = new JsonTopScan(["model", "stream"]);
  scan.push(bytes.subarray(start, end));
  const found = scan.end();
  if (found.kind === "invalid") return bad("invalid_body", `body: ${found.why}`, "body");
  const model = stringField(found.fields, "model");
  if (model === undefined || model === "") return missing(found.fields, "model", "a string", "body.model");
  if (model.length > MODEL_CHARS_MAX) return bad("model_not_found", "the model's name is too long", "body.model");
  const stream = found.fields.get("stream")?.text;
  if (stream !== undefined && stream !== "false" && stream !== "null")
    return bad("invalid_stream", "a batch's answers are not streamed", "body.stream");
  return { kind: "line", line: { customId, model, bodyStart: start, bodyEnd: end } };
}

function missing(fields: ReadonlyMap<string, JsonField>, name: string, what: string, param = name): LineReading {
  return fields.has(name)
    ? bad("invalid_type", `${param} is not ${what}`, param)
    : bad("missing_required_parameter", `${param} is missing: ${what}`, param);
}

function isBlank(bytes: Buffer): boolean {
  for (const byte of bytes) if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0d) return false;
  return true;
}

/** Cuts a file that comes in pieces into lines. */
export class LineCutter {
  readonly #bytesMax: number;
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #skipping = false;

  /** `bytesMax`: of one line; of a longer one only that it is too long is known. */
  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Lines that end in the piece, each with how many bytes of the file it takes; null for one that is too long. */
  *push(piece: Buffer): Generator<readonly [line: Buffer | null, taken: number]> {
    for (let from = 0; from < piece.length;) {
      const end = piece.indexOf(0x0a, from);
      const part = piece.subarray(from, end < 0 ? piece.length : end);
      this.#keep(part);
      if (end < 0) return;
      from = end + 1;
      yield this.#take(1);
    }
  }

  /** A last line without an end of its own. */
  *end(): Generator<readonly [line: Buffer | null, taken: number]> {
    if (this.#keptBytes > 0) yield this.#take(0);
  }

  #keep(part: Buffer): void {
    this.#keptBytes += part.length;
    if (this.#keptBytes > this.#bytesMax) {
      this.#skipping = true;
      this.#kept = [];
    } else if (part.length > 0) this.#kept.push(part);
  }

  #take(lineEnd: 0 | 1): readonly [Buffer | null, number] {
    const line = this.#skipping
      ? null
      : this.#kept.length === 1
        ? (this.#kept[0] as Buffer)
        : Buffer.concat(this.#kept);
    const taken = this.#keptBytes + lineEnd;
    this.#kept = [];
    this.#keptBytes = 0;
    this.#skipping = false;
    return [line, taken];
  }
}
