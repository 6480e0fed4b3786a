import { isFieldText } from "./field-text.ts";

/** How a body goes out behind its head. */
export type AnswerFraming =
  | { readonly kind: "length"; readonly bytes: number }
  | { readonly kind: "chunked" }
  /** The end of the connection is the end of the body. */
  | { readonly kind: "close" }
  /** No body follows, whatever the headers say. */
  | { readonly kind: "none" };

/**
 * The status line and headers of an answer, with the blank line behind them, in Latin-1. `headers` is a flat list without
 * framing fields; a `connection` in it is the caller's word that this answer is the last. Throws when a value could end its
 * line: the callers have filtered what came from elsewhere.
 */
export function renderAnswerHead(
  statusLine: string,
  headers: readonly string[],
  framing: AnswerFraming,
  /** What is the same for each answer: Date, Connection. */
  tail: string,
): string {
  let text = statusLine;
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const value = headers[i + 1]!;
    if (!isFieldText(value)) throw new TypeError(`the value of the header ${headers[i]} can't be sent`);
    text += `${headers[i]}: ${value}\r\n`;
  }
  if (framing.kind === "length") text += `Content-Length: ${framing.bytes}\r\n`;
  else if (framing.kind === "chunked") text += "Transfer-Encoding: chunked\r\n";
  return `${text}${tail}\r\n`;
}

/** Whether the list says that the connection ends with this answer. */
export function saysClose(headers: readonly string[]): boolean {
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i]!;
    if (name.length === 10 && name.toLowerCase() === "connection") return headers[i + 1]!.toLowerCase() === "close";
  }
  return false;
}
