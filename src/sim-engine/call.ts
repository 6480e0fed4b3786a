import {
  brotliCompressSync,
  constants,
  createBrotliCompress,
  createDeflate,
  createGzip,
  deflateSync,
  gzipSync,
  type BrotliCompress,
  type Deflate,
  type Gzip,
} from "node:zlib";
import type { Json } from "./json.ts";
import type { RequestRecord } from "./ledger.ts";
import type { SimDialect } from "./options.ts";
import type { SimAction } from "./script.ts";
import type { HeaderList, LostBy, Sink } from "./sink.ts";

export type Encoding = "gzip" | "br" | "deflate";

const encodingOf = (action: SimAction): Encoding | undefined =>
  action.gzip === true ? "gzip" : action.br === true ? "br" : action.deflate === true ? "deflate" : undefined;

const COMPRESS: Readonly<Record<Encoding, (data: Buffer) => Buffer>> = {
  gzip: gzipSync,
  br: brotliCompressSync,
  deflate: deflateSync,
};

/** One request on its way through the engine: its script, its place in the ledger and where its answer goes. */
export class Call {
  readonly dialect: SimDialect;
  readonly action: SimAction;
  readonly record: RequestRecord;
  readonly sink: Sink;
  readonly #encoding: Encoding | undefined;
  readonly #lost: ((by: LostBy) => void)[] = [];
  #encoder: Gzip | Deflate | BrotliCompress | undefined;
  #failed = false;
  #gone = false;
  headSent = false;

  constructor(dialect: SimDialect, action: SimAction, record: RequestRecord, sink: Sink) {
    this.dialect = dialect;
    this.action = action;
    this.record = record;
    this.sink = sink;
    this.#encoding = encodingOf(action);
    sink.onFinish(() => record.end(this.#failed ? "failed" : "finished"));
    sink.onLost((by) => {
      if (this.#gone) return;
      this.#gone = true;
      record.end(by === "engine" || this.#failed ? "failed" : "aborted");
      for (const callback of this.#lost) callback(by);
    });
  }

  get gone(): boolean {
    return this.#gone;
  }

  whenLost(callback: (by: LostBy) => void): void {
    this.#lost.push(callback);
  }

  /** The answer, complete or not, is no success. */
  markFailed(): void {
    this.#failed = true;
  }

  /** `length` undefined: a stream. */
  head(status: number, headers: HeaderList, length: number | undefined): void {
    if (this.headSent || this.#gone) return;
    this.headSent = true;
    if (status >= 400) this.#failed = true;
    const all = [...this.#ownHeaders(headers)];
    if (this.#encoding !== undefined) all.push("content-encoding", this.#encoding, "vary", "accept-encoding");
    if (this.#encoding !== undefined && length === undefined) this.#startEncoder(this.#encoding);
    this.sink.head(status, all, length);
    this.record.head(status);
  }

  write(data: string | Buffer): boolean {
    if (this.#gone) return true;
    if (this.#encoder !== undefined) {
      this.#encoder.write(data);
      this.#encoder.flush();
      return true;
    }
    return this.#send(data);
  }

  end(): void {
    if (this.#gone) return;
    if (this.#encoder === undefined) this.sink.end();
    else this.#encoder.end();
  }

  /** A whole answer at once. */
  reply(status: number, headers: HeaderList, body: string | Buffer): void {
    const plain = typeof body === "string" ? Buffer.from(body) : body;
    const bytes = this.#encoding === undefined ? plain : COMPRESS[this.#encoding](plain);
    this.head(status, headers, bytes.length);
    if (this.#gone) return;
    if (bytes.length > 0) this.#send(bytes);
    this.sink.end();
  }

  json(status: number, value: Json): void {
    this.reply(status, jsonHeaders(this.dialect, status), JSON.stringify(value));
  }

  #send(data: string | Buffer): boolean {
    this.record.bytes(typeof data === "string" ? Buffer.byteLength(data) : data.length);
    return this.sink.write(data);
  }

  #startEncoder(encoding: Encoding): void {
    const flush = constants.Z_SYNC_FLUSH;
    this.#encoder =
      encoding === "gzip"
        ? createGzip({ flush })
        : encoding === "deflate"
          ? createDeflate({ flush })
          : createBrotliCompress({ flush: constants.BROTLI_OPERATION_FLUSH });
    this.#encoder.on("data", (bytes: Buffer) => this.#send(bytes));
    this.#encoder.on("end", () => this.sink.end());
  }

  #ownHeaders(headers: HeaderList): string[] {
    const { contentType, headers: extra, setCookieTwice, connectionHeader } = this.action;
    const replaced = new Set(Object.keys(extra ?? {}).map((name) => name.toLowerCase()));
    const all: string[] = [];
    for (let index = 0; index < headers.length; index += 2) {
      const name = headers[index] ?? "";
      if (replaced.has(name.toLowerCase())) continue;
      all.push(
        name,
        name.toLowerCase() === "content-type" && contentType !== undefined ? contentType : (headers[index + 1] ?? ""),
      );
    }
    for (const [name, value] of Object.entries(extra ?? {}))
      for (const one of typeof value === "string" ? [value] : value) all.push(name, one);
    if (setCookieTwice === true) all.push("set-cookie", "sim_a=1; Path=/", "set-cookie", "sim_b=2; Path=/; HttpOnly");
    if (connectionHeader !== undefined) {
      all.push("connection", connectionHeader);
      for (const name of connectionHeader.split(",").map((part) => part.trim().toLowerCase())) {
        if (name !== "" && name !== "close" && name !== "keep-alive") all.push(name, "1");
      }
    }
    return all;
  }
}

export const jsonHeaders = (dialect: SimDialect, status: number): HeaderList =>
  dialect === "vllm"
    ? ["server", "uvicorn", "content-type", "application/json", "vary", "Origin"]
    : [
        "Server",
        "llama.cpp",
        "Access-Control-Allow-Origin",
        "",
        "Content-Type",
        "application/json; charset=utf-8",
        ...(status >= 400 ? ["Connection", "close"] : LLAMA_KEEP_ALIVE),
      ];

export const sseHeaders = (dialect: SimDialect): HeaderList =>
  dialect === "vllm"
    ? ["server", "uvicorn", "content-type", "text/event-stream; charset=utf-8", "vary", "Origin"]
    : [
        "Server",
        "llama.cpp",
        "Access-Control-Allow-Origin",
        "",
        "X-Accel-Buffering",
        "no",
        "Content-Type",
        "text/event-stream",
        ...LLAMA_KEEP_ALIVE,
      ];

export const typedHeaders = (dialect: SimDialect, type: string): HeaderList => [
  "server",
  dialect === "vllm" ? "uvicorn" : "llama.cpp",
  "content-type",
  type,
];

const LLAMA_KEEP_ALIVE: readonly string[] = ["Keep-Alive", "timeout=5, max=100"];
