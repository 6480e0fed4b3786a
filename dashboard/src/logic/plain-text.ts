const CHARS_MAX = 300;

/**
 * Characters that are not seen, or that change how their neighbours are read: controls, the escapes of terminals, marks of
 * direction, and others without a width. A name that holds one shows it.
 */
const HIDDEN =
  // oxlint-disable-next-line no-control-regex -- what is looked for
  /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u061C\u200B-\u200F\u2028-\u202E\u2060-\u206F\uFEFF\uFFF9-\uFFFB]/gu;

const shown = (char: string): string => `⟨${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

/** A text from outside as it may stand on a page: its first characters, with what hides made visible. */
export function plainText(text: string, charsMax = CHARS_MAX): string {
  // Cut first: a text of megabytes is not worth reading whole.
  const cut = text.length > charsMax ? `${text.slice(0, charsMax)}…` : text;
  return cut.replaceAll(HIDDEN, shown);
}

/** The same for a text of several lines, such as a log or an answer. */
export const plainLines = (text: string, charsMax: number): string =>
  (text.length > charsMax ? `${text.slice(0, charsMax)}…` : text).replaceAll("\r\n", "\n").replaceAll(HIDDEN, shown);
