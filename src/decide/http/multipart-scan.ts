import type { BodySpan } from "./json-splice.ts";
import { MultipartReader, type FormPart, type FormTaker } from "./multipart-reader.ts";

/** `why` is for the client. */
export type MultipartScanResult =
  | {
      readonly kind: "form";
      readonly model: string | undefined;
      /** Where in the form its value stands. */
      readonly modelAt: BodySpan | undefined;
      readonly stream: string | undefined;
      /** Names of all parts, files too, in their order. */
      readonly names: readonly string[];
    }
  | { readonly kind: "invalid"; readonly why: string };

export const FORM_FIELD_BYTES_MAX = 1_024;
export const PARTS_MAX = 1_000;

type Field = "model" | "stream";

/**
 * Finds the small fields of a form that the gateway needs, wherever they stand, while the form arrives. Strict where readers of forms
 * differ, because the engine must read the same model: the fields come once, and uncoded.
 */
// Invariant: memory is bounded by the part head, the two fields, and the names.
export class MultipartScan implements FormTaker {
  readonly #reader: MultipartReader;
  /** The field whose value is being read. */
  #field: Field | undefined;
  #value: Buffer[] = [];
  #valueBytes = 0;
  readonly #fields: { model: string | undefined; stream: string | undefined } = { model: undefined, stream: undefined };
  #modelAt: BodySpan | undefined;
  readonly #names: string[] = [];

  constructor(boundary: string) {
    this.#reader = new MultipartReader(boundary, this);
  }

  /** The bytes are not needed after the call. */
  push(chunk: Buffer): void {
    this.#reader.push(chunk);
  }

  end(): MultipartScanResult {
    const why = this.#reader.end();
    if (why !== null) return { kind: "invalid", why };
    return { kind: "form", ...this.#fields, modelAt: this.#modelAt, names: this.#names };
  }

  partBegins({ name, filename, coded }: FormPart): string | null {
    if (this.#names.length === PARTS_MAX) return `the form has more than ${PARTS_MAX} parts`;
    this.#names.push(name);
    if (name !== "model" && name !== "stream") return null;
    if (coded || filename !== null) return `the field "${name}" is encoded or a file`;
    if (this.#fields[name] !== undefined) return `the field "${name}" comes twice`;
    this.#field = name;
    return null;
  }

  content(bytes: Buffer): string | null {
    if (this.#field === undefined) return null;
    this.#valueBytes += bytes.length;
    if (this.#valueBytes > FORM_FIELD_BYTES_MAX)
      return `the field "${this.#field}" is longer than ${FORM_FIELD_BYTES_MAX} bytes`;
    this.#value.push(Buffer.from(bytes));
    return null;
  }

  partEnded(end: number): void {
    if (this.#field === "model") this.#modelAt = { start: end - this.#valueBytes, end };
    if (this.#field !== undefined) this.#fields[this.#field] = Buffer.concat(this.#value).toString("utf8");
    this.#field = undefined;
    this.#value = [];
    this.#valueBytes = 0;
  }
}
