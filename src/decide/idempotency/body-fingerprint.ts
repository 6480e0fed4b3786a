import { JsonTopScan } from "../http/json-scan.ts";
import { CanonicalDigest, type Hasher, type NewHasher } from "./canonical-digest.ts";

/** What a request's body is known to be when its fingerprint is taken. */
export type BodyForm =
  /** Checked already: a JSON object. */
  | { readonly kind: "json" }
  | { readonly kind: "form"; readonly boundary: string }
  /** Whatever it is: canonical where it proves to be a JSON object, else byte for byte. */
  | { readonly kind: "unknown" };

/** A piece of this size costs a millisecond or two. */
const PIECE_BYTES = 262_144;

/**
 * The fingerprint of a body: equal for equal content. JSON objects may differ in the order of members and in white space, forms
 * in their boundary (clients draw a new one for each try); anything else counts byte for byte. Yields after each piece of work,
 * so that a large body need not block its thread; the value returned is a text of at most 66 characters.
 */
export function* fingerprintSteps(
  chunks: readonly Buffer[],
  form: BodyForm,
  newHasher: NewHasher,
): Generator<undefined, string> {
  if (form.kind === "form") {
    const text = new WithoutBoundary(newHasher(), form.boundary);
    for (const piece of pieces(chunks)) {
      text.push(piece);
      yield;
    }
    return `f:${text.end()}`;
  }
  const canonical = new CanonicalDigest(newHasher);
  const check = form.kind === "unknown" ? new JsonTopScan([]) : undefined;
  for (const piece of pieces(chunks)) {
    check?.push(piece);
    canonical.push(piece);
    yield;
  }
  const digest = check === undefined || check.end().kind === "object" ? canonical.end() : null;
  if (digest !== null) return `j:${digest.toString("hex")}`;
  const raw = newHasher();
  for (const piece of pieces(chunks)) {
    raw.update(piece);
    yield;
  }
  return `r:${raw.digest().toString("hex")}`;
}

function* pieces(chunks: readonly Buffer[]): Generator<Buffer> {
  for (const chunk of chunks)
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) yield chunk.subarray(at, at + PIECE_BYTES);
}

/**
 * Hashes a form with, in the place of each boundary, the length of what came before it: so no content can look like a boundary.
 * A boundary stands nowhere in a form but between its parts.
 */
class WithoutBoundary {
  readonly #hasher: Hasher;
  readonly #delimiter: Buffer;
  #rest: Buffer = Buffer.alloc(0);
  #partBytes = 0;

  constructor(hasher: Hasher, boundary: string) {
    this.#hasher = hasher;
    this.#delimiter = Buffer.from(`--${boundary}`, "latin1");
  }

  push(piece: Buffer): void {
    const bytes = this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece]);
    let pos = 0;
    for (;;) {
      const at = bytes.indexOf(this.#delimiter, pos);
      if (at < 0) break;
      this.#take(bytes.subarray(pos, at));
      this.#endPart();
      pos = at + this.#delimiter.length;
    }
    // The last bytes may be the beginning of a delimiter.
    const keepFrom = Math.max(pos, bytes.length - this.#delimiter.length + 1);
    this.#take(bytes.subarray(pos, keepFrom));
    this.#rest = Buffer.from(bytes.subarray(keepFrom));
  }

  end(): string {
    this.#take(this.#rest);
    this.#endPart();
    return this.#hasher.digest().toString("hex");
  }

  #take(bytes: Buffer): void {
    this.#partBytes += bytes.length;
    this.#hasher.update(bytes);
  }

  #endPart(): void {
    const length = Buffer.allocUnsafe(6);
    length.writeUIntBE(this.#partBytes, 0, 6);
    this.#hasher.update(length);
    this.#partBytes = 0;
  }
}
