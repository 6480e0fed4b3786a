import { JsonTopScan, type JsonField } from "../../http/json-scan.ts";

/** What a submission holds: the document itself, or where to find it. */
export type DocumentReading =
  | { readonly kind: "bytes"; readonly contentType: string }
  /** The bytes of the base64 text lie between these offsets of the body. */
  | { readonly kind: "base64"; readonly start: number; readonly end: number }
  /** Passed on to a container as it is; never fetched from here. */
  | { readonly kind: "url" }
  | {
      readonly kind: "bad";
      readonly status: 400 | 415;
      /** The service's own name for the mistake. */
      readonly inner: "UnsupportedMediaType" | "InvalidArgument" | "InvalidContentLength";
      readonly why: string;
    };

/** As in the service's own list. */
const MEDIA_TYPES: ReadonlySet<string> = new Set([
  "application/octet-stream",
  "application/pdf",
  "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
  "application/vnd.openxmlformats-officedocument.presentationml.presentation",
  "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
  "image/bmp",
  "image/heif",
  "image/jpeg",
  "image/png",
  "image/tiff",
  "text/html",
]);
const SOURCES = ["urlSource", "base64Source"] as const;

const bad = (
  inner: Extract<DocumentReading, { kind: "bad" }>["inner"],
  why: string,
): Extract<DocumentReading, { kind: "bad" }> => ({
  kind: "bad",
  status: inner === "UnsupportedMediaType" ? 415 : 400,
  inner,
  why,
});

export function readDocument(contentType: string | undefined, chunks: readonly Buffer[]): DocumentReading {
  if (chunks.every((chunk) => chunk.length === 0))
    return bad("InvalidContentLength", "the body is empty: it holds the document");
  const mediaType = (contentType ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (mediaType === "application/json") return readSource(chunks);
  if (MEDIA_TYPES.has(mediaType)) return { kind: "bytes", contentType: mediaType };
  return bad("UnsupportedMediaType", `the content type ${JSON.stringify(mediaType.slice(0, 100))} is no document's`);
}

function readSource(chunks: readonly Buffer[]): DocumentReading {
  const scan = new JsonTopScan(SOURCES);
  for (const chunk of chunks) scan.push(chunk);
  const read = scan.end();
  if (read.kind === "invalid") return bad("InvalidArgument", `the body can't be read: ${read.why}`);
  const [url, base64] = SOURCES.map((name) => read.fields.get(name)).map((field) =>
    isNull(field) ? undefined : field,
  );
  if ((url === undefined) === (base64 === undefined))
    return bad("InvalidArgument", "the body names one of `urlSource` and `base64Source`");
  // A text is told by its quotes, as a large one is not kept.
  const field = url ?? base64;
  if (field === undefined || byteAt(chunks, field.start) !== QUOTE || field.end - field.start <= 2)
    return bad("InvalidArgument", "the source is no text, or an empty one");
  return url === undefined ? { kind: "base64", start: field.start + 1, end: field.end - 1 } : { kind: "url" };
}

const QUOTE = 0x22;
const isNull = (field: JsonField | undefined): boolean => field?.text === "null";

function byteAt(chunks: readonly Buffer[], offset: number): number | undefined {
  let from = 0;
  for (const chunk of chunks) {
    if (offset < from + chunk.length) return chunk[offset - from];
    from += chunk.length;
  }
  return undefined;
}

const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
const SLICE_BYTES = 1024 * 1024;
const BEGINNINGS: readonly (readonly [bytes: string, contentType: string])[] = [
  ["%PDF-", "application/pdf"],
  ["\x89PNG\r\n", "image/png"],
  ["\xff\xd8\xff", "image/jpeg"],
  ["II*\0", "image/tiff"],
  ["MM\0*", "image/tiff"],
  ["BM", "image/bmp"],
];

/**
 * The document in a `base64Source`, a megabyte a step, so that a large one holds nobody up. Ends early, with false, where the
 * text is no base64. An escaped slash (`\/`), which some writers of JSON make, is one.
 */
export function* decodeBase64(
  chunks: readonly Buffer[],
  { start, end }: { readonly start: number; readonly end: number },
): Generator<Buffer, boolean, undefined> {
  let rest = "";
  let ended = false;
  for (const slice of slices(chunks, start, end)) {
    const text = (rest + slice.toString("latin1")).replaceAll("\\/", "/");
    // A backslash may stand at a slice's end, its slash at the beginning of the next one.
    const usable = text.endsWith("\\") ? text.length - 1 : text.length;
    const whole = usable - (usable % 4);
    rest = text.slice(whole);
    const part = text.slice(0, whole);
    if (part === "") continue;
    if (ended || !BASE64.test(part)) return false;
    ended = part.endsWith("=");
    yield Buffer.from(part, "base64");
  }
  if (rest === "") return true;
  // Without its padding.
  if (ended || rest.length === 1 || !BASE64.test(rest)) return false;
  yield Buffer.from(rest, "base64");
  return true;
}

function* slices(chunks: readonly Buffer[], start: number, end: number): Generator<Buffer, void, undefined> {
  let from = 0;
  for (const chunk of chunks) {
    const last = Math.min(chunk.length, end - from);
    for (let at = Math.max(0, start - from); at < last; at += SLICE_BYTES)
      yield chunk.subarray(at, Math.min(last, at + SLICE_BYTES));
    from += chunk.length;
  }
}

/** By the document's first bytes. */
export function contentTypeOf(bytes: Buffer): string {
  const head = bytes.toString("latin1", 0, 8);
  return BEGINNINGS.find(([begin]) => head.startsWith(begin))?.[1] ?? "application/octet-stream";
}
