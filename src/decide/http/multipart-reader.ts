import { parseParameters } from "./parameters.ts";

export type BoundaryResult =
  | { readonly kind: "ok"; readonly boundary: string }
  | { readonly kind: "notMultipart" }
  | { readonly kind: "bad"; readonly why: string };

export const PART_HEAD_BYTES_MAX = 8_192;

/** Reads the boundary of a `multipart/form-data` content type: 1 to 70 characters, quoted when they are not those of a token. */
export function parseBoundary(contentType: string | undefined): BoundaryResult {
  const match = /^[ \t]*multipart\/form-data[ \t]*(?=;|$)/i.exec(contentType ?? "");
  if (match === null) return { kind: "notMultipart" };
  const found = parseParameters(contentType!.slice(match[0].length))?.filter(({ name }) => name === "boundary");
  if (found === undefined) return { kind: "bad", why: "the content type can't be read" };
  if (found.length !== 1)
    return { kind: "bad", why: `the content type has ${found.length === 0 ? "no boundary" : "two boundaries"}` };
  const { value } = found[0]!;
  if (!/^[A-Za-z0-9'()+_,./:=? -]{0,69}[A-Za-z0-9'()+_,./:=?-]$/.test(value))
    return { kind: "bad", why: "the boundary is not 1 to 70 characters of those allowed" };
  return { kind: "ok", boundary: value };
}

/** The head of one part. */
export interface FormPart {
  readonly name: string;
  /** Null: the part is no file. As its sender wrote it. */
  readonly filename: string | null;
  /** Its content comes in a coding. */
  readonly coded: boolean;
}

/** Who takes what a form holds. Each may refuse the form, in words for the client. */
export interface FormTaker {
  partBegins(part: FormPart): string | null;
  /** Valid during the call only. */
  content(bytes: Buffer): string | null;
  /** `end`: where in the form its content ended. */
  partEnded(end: number): void;
}

const NO_BYTES = Buffer.alloc(0);
const LINE_END = Buffer.from("\r\n");

/**
 * Reads a form while it arrives. Strict where readers of forms differ: lines end in CRLF, and a boundary is followed by CRLF or `--` at
 * once.
 */
// Invariants:
//   M1. In the preamble and in contents, `tail` holds the last bytes seen, too few for a delimiter; all before it is content.
//   M2. Memory is bounded by the part head, and what the taker keeps.
export class MultipartReader {
  readonly #delimiter: Buffer;
  readonly #taker: FormTaker;
  #state: "content" | "head" | "epilogue" = "content";
  /** A form may begin with its boundary: the line end before it is taken as read. */
  #tail: Buffer = LINE_END;
  /** What follows a delimiter, to the end of the part's head. */
  #head = "";
  #started = false;
  /** Where in the form the chunk begins that is being read. */
  #offset = 0;
  #why: string | undefined;

  constructor(boundary: string, taker: FormTaker) {
    this.#delimiter = Buffer.from(`\r\n--${boundary}`, "latin1");
    this.#taker = taker;
  }

  /** Why the form can't be read; undefined as long as it can. */
  get why(): string | undefined {
    return this.#why;
  }

  /** The bytes are not needed after the call. */
  push(chunk: Buffer): void {
    let pos = 0;
    while (pos < chunk.length && this.#why === undefined && this.#state !== "epilogue") {
      pos = this.#state === "content" ? this.#skipContent(chunk, pos) : this.#readHead(chunk, pos);
    }
    this.#offset += chunk.length;
  }

  /** Why the form is not whole; null: it is. */
  end(): string | null {
    if (this.#why === undefined && this.#state !== "epilogue")
      this.#fail(this.#started ? "the form ends too early" : "the form's boundary was not found");
    return this.#why ?? null;
  }

  #skipContent(chunk: Buffer, from: number): number {
    const delimiter = this.#delimiter;
    const tail = this.#tail;
    if (tail.length > 0) {
      // The delimiter may lie across the seam; only as much of the chunk as it can reach is joined.
      const seam = Buffer.concat([tail, chunk.subarray(from, from + delimiter.length - 1)]);
      const at = seam.indexOf(delimiter);
      if (at >= 0) {
        this.#contentEnded(seam.subarray(0, at), this.#offset + from + at - tail.length);
        return from + at + delimiter.length - tail.length;
      }
      if (chunk.length - from < delimiter.length) {
        const certain = Math.max(0, seam.length - (delimiter.length - 1));
        this.#content(seam.subarray(0, certain));
        this.#tail = Buffer.from(seam.subarray(certain));
        return chunk.length;
      }
      this.#content(tail);
      this.#tail = NO_BYTES;
    }
    const at = chunk.indexOf(delimiter, from);
    if (at >= 0) {
      this.#contentEnded(chunk.subarray(from, at), this.#offset + at);
      return at + delimiter.length;
    }
    const certain = Math.max(from, chunk.length - (delimiter.length - 1));
    this.#content(chunk.subarray(from, certain));
    this.#tail = Buffer.from(chunk.subarray(certain));
    return chunk.length;
  }

  #content(bytes: Buffer): void {
    if (!this.#started || bytes.length === 0) return;
    const why = this.#taker.content(bytes);
    if (why !== null) this.#fail(why);
  }

  #contentEnded(rest: Buffer, end: number): void {
    this.#content(rest);
    if (this.#started) this.#taker.partEnded(end);
    this.#tail = NO_BYTES;
    this.#started = true;
    this.#head = "";
    this.#state = "head";
  }

  /** The head begins behind the delimiter: `--` ends the form, else CRLF, header lines and an empty line follow. */
  #readHead(chunk: Buffer, from: number): number {
    const before = this.#head.length;
    const taken = chunk.toString("latin1", from, Math.min(chunk.length, from + PART_HEAD_BYTES_MAX + 4 - before));
    this.#head += taken;
    if (this.#head.startsWith("--")) {
      this.#state = "epilogue";
      return chunk.length;
    }
    if (this.#head !== "-" && !"\r\n".startsWith(this.#head.slice(0, 2))) {
      this.#fail("the form's boundary is not followed by a line end (CRLF)");
      return chunk.length;
    }
    const end = this.#head.indexOf("\r\n\r\n", Math.max(0, before - 3));
    if (end < 0) {
      if (this.#head.length >= PART_HEAD_BYTES_MAX + 4)
        this.#fail(`the head of a part is longer than ${PART_HEAD_BYTES_MAX} bytes`);
      return from + taken.length;
    }
    this.#partBegins(this.#head.slice(2, Math.max(2, end)));
    this.#state = "content";
    return from + end + 4 - before;
  }

  #partBegins(head: string): void {
    const part = parsePartHead(head);
    if (part.kind === "invalid") return this.#fail(part.why);
    const why = this.#taker.partBegins(part);
    if (why !== null) this.#fail(why);
  }

  #fail(why: string): void {
    this.#why ??= why;
  }
}

type PartHead = ({ readonly kind: "part" } & FormPart) | { readonly kind: "invalid"; readonly why: string };

/** Values of visible characters, blanks and tabs; bytes above ASCII are text of some encoding. */
const HEADER_LINE = /^([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)$/;

/** `head` is the part's header lines without the empty line, each byte a character. */
function parsePartHead(head: string): PartHead {
  const invalid = (why: string): PartHead => ({ kind: "invalid", why });
  let disposition: string | undefined;
  let transferEncoding = "binary";
  for (const line of head === "" ? [] : head.split("\r\n")) {
    const match = HEADER_LINE.exec(line);
    if (match === null) return invalid("a header line of a part can't be read");
    const name = match[1]!.toLowerCase();
    if (name === "content-transfer-encoding") transferEncoding = match[2]!.trim().toLowerCase();
    if (name !== "content-disposition") continue;
    if (disposition !== undefined) return invalid("a part has two Content-Disposition headers");
    disposition = match[2]!;
  }
  const type = /^form-data[ \t]*(?=;)/i.exec(disposition ?? "");
  const parameters = type === null ? undefined : parseParameters(disposition!.slice(type[0].length));
  if (parameters === undefined) return invalid("a part has no readable Content-Disposition: form-data");
  // `name*` is not for forms (RFC 7578), and readers differ on it.
  const names = parameters.filter(({ name }) => name === "name" || name === "name*");
  const first = names[0];
  if (names.length !== 1 || first === undefined || first.name !== "name" || /\\[^"\\]/.test(first.value))
    return invalid("a part has no name, or one that can be read in two ways");
  const name = latin1Text(first.value);
  const coded = !["7bit", "8bit", "binary"].includes(transferEncoding);
  const filename = parameters.find((parameter) => parameter.name.startsWith("filename"));
  return { kind: "part", name, filename: filename === undefined ? null : latin1Text(filename.value), coded };
}

const latin1Text = (value: string): string => Buffer.from(value.replace(/\\(.)/g, "$1"), "latin1").toString("utf8");
