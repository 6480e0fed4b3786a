import type { AnalyzeTarget } from "./analyze-paths.ts";

/**
 * Makes the service's own result of what a plain OCR engine answers: text, Markdown, or JSON with a text or with pages of
 * text. Only what the engine said is in it: no angle, size or word that nobody measured.
 */
export interface OcrPage {
  readonly text: string;
  readonly width: number | undefined;
  readonly height: number | undefined;
  readonly unit: string | undefined;
}

export type OcrReading =
  | { readonly kind: "pages"; readonly pages: readonly OcrPage[]; readonly format: "text" | "markdown" }
  | { readonly kind: "unreadable"; readonly why: string };

/** How offsets count, by the client's choice. */
export type StringIndexType = "textElements" | "unicodeCodePoint" | "utf16CodeUnit";
export const STRING_INDEX_TYPES: readonly StringIndexType[] = ["textElements", "unicodeCodePoint", "utf16CodeUnit"];

const TEXT_KEYS = ["text", "content", "markdown", "md"] as const;
const PAGES_KEYS = ["pages", "results", "data"] as const;
const PAGES_MAX = 10_000;
const PAGE_BREAK = "\n";

type Fields = Readonly<Record<string, unknown>>;

export function readOcrAnswer(contentType: string, body: string): OcrReading {
  const mediaType = contentType.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (mediaType === "text/plain" || mediaType === "text/markdown")
    return { kind: "pages", pages: [plainPage(body)], format: mediaType === "text/plain" ? "text" : "markdown" };
  if (!/^application\/(?:[\w.-]+\+)?json$/.test(mediaType))
    return unreadable(`the OCR engine answered with ${JSON.stringify(mediaType.slice(0, 100))}`);
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return unreadable("the OCR engine's answer is no JSON");
  }
  const list = Array.isArray(value) ? value : isFields(value) ? listOf(value) : undefined;
  if (list !== undefined) return readPages(list);
  if (typeof value === "string") return { kind: "pages", pages: [plainPage(value)], format: "text" };
  const key = isFields(value) ? textKeyOf(value) : undefined;
  if (!isFields(value) || key === undefined) return unreadable("the OCR engine's answer holds no text and no pages");
  return { kind: "pages", pages: [pageOf(value, key)], format: formatOf(key) };
}

function readPages(list: readonly unknown[]): OcrReading {
  if (list.length > PAGES_MAX) return unreadable(`the OCR engine's answer has more than ${PAGES_MAX} pages`);
  const pages: OcrPage[] = [];
  let format: "text" | "markdown" = "text";
  for (const [index, entry] of list.entries()) {
    const key = isFields(entry) ? textKeyOf(entry) : undefined;
    if (typeof entry === "string") pages.push(plainPage(entry));
    else if (isFields(entry) && key !== undefined) {
      pages.push(pageOf(entry, key));
      if (formatOf(key) === "markdown") format = "markdown";
    } else return unreadable(`page ${index + 1} of the OCR engine's answer holds no text`);
  }
  return { kind: "pages", pages, format };
}

const unreadable = (why: string): OcrReading => ({ kind: "unreadable", why });
const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const plainPage = (text: string): OcrPage => ({ text, width: undefined, height: undefined, unit: undefined });
const formatOf = (key: (typeof TEXT_KEYS)[number]): "text" | "markdown" =>
  key === "markdown" || key === "md" ? "markdown" : "text";
const textKeyOf = (value: Fields): (typeof TEXT_KEYS)[number] | undefined =>
  TEXT_KEYS.find((key) => typeof value[key] === "string");
const listOf = (value: Fields): readonly unknown[] | undefined =>
  PAGES_KEYS.map((key) => value[key]).find((list): list is unknown[] => Array.isArray(list));

function pageOf(value: Fields, key: (typeof TEXT_KEYS)[number]): OcrPage {
  const size = (name: string): number | undefined => {
    const found = value[name];
    return typeof found === "number" && Number.isFinite(found) && found > 0 ? found : undefined;
  };
  const unit = value["unit"];
  return {
    text: String(value[key]),
    width: size("width"),
    height: size("height"),
    unit: unit === "pixel" || unit === "inch" ? unit : undefined,
  };
}

/** The operation's JSON as the service would give it. `lengths` are those of the pages' texts; times are RFC 3339. */
export function renderOperation(
  target: AnalyzeTarget,
  reading: Extract<OcrReading, { kind: "pages" }>,
  lengths: readonly number[],
  stringIndexType: StringIndexType,
  times: { readonly createdAt: string; readonly updatedAt: string },
): string {
  let offset = 0;
  const pages = reading.pages.map((page, index) => {
    const length = lengths[index] ?? 0;
    const spans = [{ offset, length }];
    offset += length + PAGE_BREAK.length;
    const { width, height, unit } = page;
    const size = { ...(width === undefined ? {} : { width }), ...(height === undefined ? {} : { height }) };
    return { pageNumber: index + 1, ...size, ...(unit === undefined ? {} : { unit }), spans };
  });
  const { family, apiVersion, modelId } = target;
  return JSON.stringify({
    status: "succeeded",
    createdDateTime: times.createdAt,
    lastUpdatedDateTime: times.updatedAt,
    analyzeResult: {
      apiVersion,
      modelId,
      stringIndexType,
      ...(family === "documentintelligence" ? { contentFormat: reading.format } : {}),
      content: reading.pages.map((page) => page.text).join(PAGE_BREAK),
      pages,
      paragraphs: [],
      tables: [],
      styles: [],
    },
  });
}

// Made by the first text that needs it: its tables take a twentieth of a second to load.
let segmenter: Intl.Segmenter | undefined;
/** What may make one text element of several code points. Lines without any are counted a hundred times faster. */
const JOINING =
  /[\p{M}\p{Cf}\p{Emoji_Modifier}\p{Regional_Indicator}\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff\r\u0d4e\u0e33\u0eb3\uff9e\uff9f\u{111c2}\u{111c3}\u{113d1}\u{1193f}\u{11941}\u{11a84}-\u{11a89}\u{11d46}\u{11f02}]/u;
const ASTRAL = /[\ud800-\udfff]/;

function textElements(line: string): number {
  segmenter ??= new Intl.Segmenter("en", { granularity: "grapheme" });
  let count = 0;
  for (const _ of segmenter.segment(line)) count += 1;
  return count;
}

/** How long a text is in the units that offsets count. */
export function textLength(text: string, type: StringIndexType): number {
  if (type === "utf16CodeUnit") return text.length;
  if (type === "unicodeCodePoint" || !JOINING.test(text)) return codePoints(text);
  let length = 0;
  for (const line of text.split(/(?<=\n)/)) {
    if (!JOINING.test(line)) length += codePoints(line);
    else length += textElements(line);
  }
  return length;
}

function codePoints(text: string): number {
  if (!ASTRAL.test(text)) return text.length;
  let length = 0;
  for (const _ of text) length += 1;
  return length;
}
