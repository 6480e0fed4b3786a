import { keptFor } from "../../contract/batch-view.ts";
import { MultipartReader, type FormPart, type FormTaker } from "../http/multipart-reader.ts";

export type UploadEnd =
  | { readonly kind: "whole"; readonly filename: string; readonly keepS: number | null }
  | { readonly kind: "invalid"; readonly why: string; readonly param: string | null };

const FIELDS = ["purpose", "expires_after[anchor]", "expires_after[seconds]"] as const;
type Field = (typeof FIELDS)[number];
const FIELD_BYTES_MAX = 256;
const FILENAME_CHARS_MAX = 255;

/** The form of an upload. The file's bytes are handed on as they come; nothing of them is kept. */
export class UploadForm implements FormTaker {
  readonly #reader: MultipartReader;
  readonly #onBytes: (bytes: Buffer) => void;
  readonly #fields = new Map<Field, string>();
  #field: Field | null = null;
  #inFile = false;
  #filename: string | null = null;
  #parts = 0;

  /** `onBytes`: memory of the chunk that was pushed, or of its own. */
  constructor(boundary: string, onBytes: (bytes: Buffer) => void) {
    this.#reader = new MultipartReader(boundary, this);
    this.#onBytes = onBytes;
  }

  /** Why the rest need not be read; undefined as long as the form is good. */
  get why(): string | undefined {
    return this.#reader.why;
  }

  push(chunk: Buffer): void {
    this.#reader.push(chunk);
  }

  end(): UploadEnd {
    const invalid = (why: string, param: string | null): UploadEnd => ({ kind: "invalid", why, param });
    const why = this.#reader.end();
    if (why !== null) return invalid(`the form can't be read: ${why}`, null);
    const purpose = this.#fields.get("purpose");
    if (purpose !== "batch")
      return invalid(purpose === undefined ? "purpose is missing: use batch" : "purpose: use batch", "purpose");
    if (this.#filename === null) return invalid("file is missing", "file");
    const [, anchor, seconds] = FIELDS.map((name) => this.#fields.get(name));
    if (anchor === undefined && seconds === undefined) return { kind: "whole", filename: this.#filename, keepS: null };
    const kept = keptFor.safeParse({ anchor, seconds });
    if (!kept.success)
      return invalid("expires_after: use anchor created_at and 3600 to 2592000 seconds", "expires_after");
    return { kind: "whole", filename: this.#filename, keepS: kept.data.seconds };
  }

  partBegins({ name, filename, coded }: FormPart): string | null {
    this.#parts += 1;
    if (this.#parts > FIELDS.length + 1) return "there are more parts than an upload has";
    if (coded) return `the part ${shown(name)} is encoded`;
    if (name === "file") {
      if (this.#filename !== null) return "there is more than one file";
      this.#filename = cleanName(filename);
      this.#inFile = true;
      return null;
    }
    const field = FIELDS.find((known) => known === name);
    if (field === undefined || filename !== null) return `the part ${shown(name)} is none of an upload`;
    if (this.#fields.has(field)) return `the field ${field} comes twice`;
    this.#fields.set(field, "");
    this.#field = field;
    return null;
  }

  content(bytes: Buffer): string | null {
    if (this.#inFile) this.#onBytes(bytes);
    if (this.#field === null) return null;
    const value = this.#fields.get(this.#field) + bytes.toString("latin1");
    if (value.length > FIELD_BYTES_MAX) return `the field ${this.#field} is too long`;
    this.#fields.set(this.#field, value);
    return null;
  }

  partEnded(): void {
    this.#field = null;
    this.#inFile = false;
  }
}

const shown = (name: string): string => JSON.stringify(name.slice(0, 40));

/** A name to show, and no more: no path, nothing that a terminal or a header would take for something else. */
function cleanName(filename: string | null): string {
  const last = (filename ?? "").split(/[/\\]/).at(-1) ?? "";
  const clean = last.replace(/\p{C}/gu, "").slice(0, FILENAME_CHARS_MAX);
  return clean === "" ? "file.jsonl" : clean;
}
