import { RawClient, type Ending } from "../../../src/testing/raw-client.ts";
import type { TestGateway } from "./test-gateway.ts";

/** An answer taken apart by a reader that forgives nothing. */
export interface ParsedAnswer {
  /** 1xx answers that came before it, head by head. */
  readonly informational: readonly string[];
  readonly status: number;
  /** Status line and header lines. */
  readonly head: string;
  readonly framing: "chunked" | "length" | "close" | "none";
  readonly payload: Buffer;
  readonly trailers: string;
  /** The framing says that the answer is complete. False for an answer that only the connection's end can end. */
  readonly whole: boolean;
  /** What came behind a whole answer. */
  readonly rest: Buffer;
}

export interface HeardAnswer extends ParsedAnswer {
  readonly ending: Ending;
  readonly text: string;
}

/** All values of a header, in order. */
export const headersOf = (answer: ParsedAnswer, name: string): string[] =>
  answer.head
    .split("\r\n")
    .slice(1)
    .filter((line) => line.toLowerCase().startsWith(`${name.toLowerCase()}:`))
    .map((line) => line.slice(name.length + 1).trim());

export const headerOf = (answer: ParsedAnswer, name: string): string | undefined => headersOf(answer, name)[0];

/** Throws where the bytes are no HTTP/1.1; an answer that stops early is given as far as it came. */
export function parseAnswer(bytes: Buffer, method = "POST"): ParsedAnswer {
  const informational: string[] = [];
  let at = 0;
  for (;;) {
    const end = bytes.indexOf("\r\n\r\n", at);
    if (end === -1) throw new Error(`no head in: ${bytes.toString("latin1", at, at + 200)}`);
    const head = bytes.toString("latin1", at, end);
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(head)?.[1]);
    if (!(status >= 100)) throw new Error(`no status line: ${head}`);
    at = end + 4;
    if (status < 200) {
      informational.push(head);
      continue;
    }
    const value = (name: string): string | undefined => new RegExp(`^${name}: *(.*)$`, "im").exec(head)?.[1]?.trim();
    const base = { informational, status, head };
    if (method === "HEAD" || status === 204 || status === 304)
      return {
        ...base,
        framing: "none",
        payload: Buffer.alloc(0),
        trailers: "",
        whole: true,
        rest: bytes.subarray(at),
      };
    if (value("transfer-encoding") !== undefined) return { ...base, framing: "chunked", ...parseChunks(bytes, at) };
    const length = value("content-length");
    if (length === undefined)
      return {
        ...base,
        framing: "close",
        payload: bytes.subarray(at),
        trailers: "",
        whole: false,
        rest: Buffer.alloc(0),
      };
    const stop = at + Number(length);
    return {
      ...base,
      framing: "length",
      payload: bytes.subarray(at, stop),
      trailers: "",
      whole: bytes.length >= stop,
      rest: bytes.subarray(stop),
    };
  }
}

function parseChunks(bytes: Buffer, from: number): { payload: Buffer; trailers: string; whole: boolean; rest: Buffer } {
  const parts: Buffer[] = [];
  let at = from;
  const cut = (): { payload: Buffer; trailers: string; whole: boolean; rest: Buffer } => ({
    payload: Buffer.concat(parts),
    trailers: "",
    whole: false,
    rest: Buffer.alloc(0),
  });
  for (;;) {
    const lineEnd = bytes.indexOf("\r\n", at);
    if (lineEnd === -1) {
      if (!/^[0-9a-f]{0,16}\r?$/i.test(bytes.toString("latin1", at)))
        throw new Error(`no chunk size: ${bytes.toString("latin1", at, at + 80)}`);
      return cut();
    }
    const line = bytes.toString("latin1", at, lineEnd);
    if (!/^[0-9a-f]{1,16}$/i.test(line)) throw new Error(`no chunk size: ${line.slice(0, 80)}`);
    const size = Number.parseInt(line, 16);
    at = lineEnd + 2;
    if (size === 0) {
      const end = bytes.indexOf("\r\n", at) === at ? at + 2 : bytes.indexOf("\r\n\r\n", at) + 4;
      if (end < at + 2) return cut();
      return {
        payload: Buffer.concat(parts),
        trailers: bytes.toString("latin1", at, end),
        whole: true,
        rest: bytes.subarray(end),
      };
    }
    parts.push(bytes.subarray(at, Math.min(at + size, bytes.length)));
    at += size;
    if (at >= bytes.length) return cut();
    const behind = bytes.toString("latin1", at, at + 2);
    if (!"\r\n".startsWith(behind)) throw new Error(`a chunk is not closed but followed by ${JSON.stringify(behind)}`);
    at += 2;
  }
}

export interface AskOptions {
  readonly method?: string;
  readonly path?: string;
  readonly version?: "1.0" | "1.1";
  /** Further header lines, without line ends. */
  readonly headers?: readonly string[];
  /** Null: no body and no content-type. Default: a small streaming chat. */
  readonly body?: string | Buffer | Readonly<Record<string, unknown>> | null;
  readonly contentType?: string;
}

export const aChat = (more: Readonly<Record<string, unknown>> = {}): Readonly<Record<string, unknown>> => ({
  model: "m",
  stream: true,
  messages: [{ role: "user", content: "hi" }],
  ...more,
});

/** The bytes of a request that asks for the connection to be closed behind the answer. */
export function requestBytes(gateway: TestGateway, options: AskOptions = {}): Buffer {
  const {
    method = "POST",
    path = "/v1/chat/completions",
    version = "1.1",
    headers = [],
    body = aChat(),
    contentType = "application/json",
  } = options;
  const bytes =
    body === null
      ? null
      : Buffer.isBuffer(body)
        ? body
        : Buffer.from(typeof body === "string" ? body : JSON.stringify(body));
  const lines = [
    `${method} ${path} HTTP/${version}`,
    "Host: gateway.test",
    `Authorization: ${gateway.auth["authorization"]}`,
    ...(headers.some((line) => /^connection:/i.test(line)) ? [] : ["Connection: close"]),
    ...(bytes === null ? [] : [`Content-Type: ${contentType}`, `Content-Length: ${bytes.length}`]),
    ...headers,
  ];
  return Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), bytes ?? Buffer.alloc(0)]);
}

/** Sends one request on its own connection and reads to the end of the connection. */
export async function ask(gateway: TestGateway, options: AskOptions = {}): Promise<HeardAnswer> {
  using client = await RawClient.connect(gateway.port);
  await client.write(requestBytes(gateway, options));
  return await heard(client, options.method); // Awaited here: the client is closed on the way out.
}

export async function heard(client: RawClient, method?: string): Promise<HeardAnswer> {
  const bytes = await client.readToEnd();
  const answer = parseAnswer(bytes, method);
  return { ...answer, ending: client.ending, text: answer.payload.toString("utf8") };
}
