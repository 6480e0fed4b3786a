import type { UpstreamRequest } from "./port.ts";

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
// Visible ASCII and raw bytes above it; no blank, which would end the target.
const TARGET = /^[\x21-\x7e\x80-\xff]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const FRAMING = /^(?:content-length|transfer-encoding)$/i;
// Names found in order before; callers send the same few, and nothing a caller sends can make the set grow for ever.
const SENDABLE_MAX = 512;
const sendable = new Set<string>();

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
    if (!sendable.has(name)) {
      if (!TOKEN.test(name)) return refused("a header name cannot be sent");
      if (FRAMING.test(name)) return refused(`${name} is the client's to set`);
      if (sendable.size < SENDABLE_MAX && name.length <= 64) sendable.add(name);
    }
    if (!VALUE.test(value)) return refused(`the value of ${name} cannot be sent`);
    text += `${name}: ${value}\r\n`;
  }
  if (bodyBytes !== undefined) text += `Content-Length: ${bodyBytes}\r\n`;
  return { kind: "head", text: `${text}\r\n` };
}

function refused(reason: string): RequestHead {
  return { kind: "refused", reason };
}
