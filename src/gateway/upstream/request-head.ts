import { isFieldText } from "../../decide/http/field-text.ts";
import { CONTENT_LENGTH, headerTraits, TRANSFER_ENCODING } from "../../decide/http/header-traits.ts";
import type { UpstreamRequest } from "./port.ts";

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
// Visible ASCII and raw bytes above it; no blank, which would end the target.
const TARGET = /^[\x21-\x7e\x80-\xff]+$/;
const FRAMING = CONTENT_LENGTH | TRANSFER_ENCODING;

export type RequestHead =
  | { readonly kind: "head"; readonly text: string }
  /** Sending it could make the engine see another request than was meant. */
  | { readonly kind: "refused"; readonly reason: string };

/** The request line and headers in Latin-1, with the blank line behind them. */
export function buildRequestHead(request: UpstreamRequest): RequestHead {
  const { method, path, headers, body, bodyBytes } = request;
  if (!TOKEN.test(method) || method === "CONNECT") return refused("the method cannot be sent");
  if (!TARGET.test(path) || path.charCodeAt(0) !== 47) return refused("the path cannot be sent");
  let sum = 0;
  for (const part of body) sum += part.length;
  if (sum !== (bodyBytes ?? 0)) return refused("the body's length is not the one announced");
  let text = `${method} ${path} HTTP/1.1\r\n`;
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    const { isToken, once } = headerTraits(name);
    if (!isToken) return refused("a header name cannot be sent");
    if ((once & FRAMING) !== 0) return refused(`${name} is the client's to set`);
    if (!isFieldText(value)) return refused(`the value of ${name} cannot be sent`);
    text += `${name}: ${value}\r\n`;
  }
  if (bodyBytes !== undefined) text += `Content-Length: ${bodyBytes}\r\n`;
  return { kind: "head", text: `${text}\r\n` };
}

function refused(reason: string): RequestHead {
  return { kind: "refused", reason };
}
