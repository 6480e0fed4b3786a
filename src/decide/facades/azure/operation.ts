import { JsonTopScan, stringField } from "../../http/json-scan.ts";

/** What the JSON of an operation says. */
export type OperationReading =
  | { readonly kind: "under" }
  /** With its result inside. */
  | { readonly kind: "succeeded" }
  | { readonly kind: "failed"; readonly code: string; readonly message: string }
  /** It says that all went well, and holds nothing. */
  | { readonly kind: "noResult" }
  | { readonly kind: "unreadable"; readonly why: string };

const WANTED = ["status", "analyzeResult", "error"] as const;
const UNDER = new Set(["notstarted", "running", "canceling"]);
const UNWELL = new Set(["failed", "canceled", "cancelled", "skipped"]);
const SAID_CHARS_MAX = 1_000;

/** Reads an operation while it arrives, without building the document: results are megabytes. */
export class OperationReader {
  readonly #scan = new JsonTopScan(WANTED);

  push(chunk: Buffer): void {
    this.#scan.push(chunk);
  }

  end(): OperationReading {
    const read = this.#scan.end();
    if (read.kind === "invalid") return { kind: "unreadable", why: `the operation can't be read: ${read.why}` };
    const status = stringField(read.fields, "status")?.toLowerCase();
    if (status === undefined) return { kind: "unreadable", why: "the operation names no status" };
    if (UNDER.has(status)) return { kind: "under" };
    if (UNWELL.has(status)) return { kind: "failed", ...readError(read.fields.get("error")?.text, status) };
    if (status !== "succeeded" && status !== "completed")
      return { kind: "unreadable", why: `the operation's status is ${JSON.stringify(status.slice(0, 40))}` };
    const result = read.fields.get("analyzeResult");
    // An object has braces and something between them.
    const holdsResult = result !== undefined && result.text !== "null" && result.end - result.start > 2;
    return holdsResult ? { kind: "succeeded" } : { kind: "noResult" };
  }
}

function readError(text: string | undefined, status: string): { readonly code: string; readonly message: string } {
  const fallback = { code: "InternalServerError", message: `the analysis ended as ${status}` };
  if (text === undefined) return fallback;
  const error = JSON.parse(text) as unknown;
  if (typeof error !== "object" || error === null) return fallback;
  const { code, message } = error as Readonly<Record<string, unknown>>;
  const said = (value: unknown, otherwise: string): string =>
    typeof value === "string" && value !== "" ? value.slice(0, SAID_CHARS_MAX) : otherwise;
  return { code: said(code, fallback.code), message: said(message, fallback.message) };
}
