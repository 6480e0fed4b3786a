import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Clock } from "../kernel/clock.ts";
import { STATUS_CODES } from "../kernel/node-builtins.ts";
import type { SimAction } from "./script.ts";
import type { HeaderList, LostBy, Sink } from "./sink.ts";
import { resetSocket } from "../kernel/reset-socket.ts";

const HUGE_HEADER_BYTES = 300_000;

/** Actions that only bytes written by hand can carry out. */
const RAW_KEYS: readonly (keyof SimAction)[] = [
  "chunkBytes",
  "chunkGapMs",
  "slowLorisMs",
  "cutBeforeHead",
  "cutAfterBytes",
  "hangAfterBytes",
  "trailers",
  "wrongFraming",
  "flood1xx",
  "early103",
  "splitCrLf",
];

export const needsRawSink = (action: SimAction): boolean => RAW_KEYS.some((key) => action[key] !== undefined);

/**
 * An HTTP/1.1 answer written byte by byte onto the request's socket, so that framing, pace and end can be wrong.
 * A well-formed answer says `connection: close`, because the server's own parser can't take the connection back.
 */
export class RawSink implements Sink {
  readonly #socket: Socket;
  readonly #clock: Clock;
  readonly #action: SimAction;
  readonly #queue: Buffer[] = [];
  readonly #piece: number;
  readonly #gapMs: number;
  #chunked = false;
  #bodyBytes = 0;
  #sending = false;
  #ended = false;
  /** The script lets nothing more out; only the client can end the connection. */
  #held = false;
  #gone = false;
  #finish: (() => void) | undefined;
  #lost: ((by: LostBy) => void) | undefined;
  #by: LostBy = "engine";
  #drain: (() => void) | undefined;

  constructor(request: IncomingMessage, clock: Clock, action: SimAction) {
    this.#socket = request.socket;
    this.#clock = clock;
    this.#action = action;
    this.#piece = action.slowLorisMs !== undefined ? 1 : (action.chunkBytes ?? Number.POSITIVE_INFINITY);
    this.#gapMs = action.slowLorisMs ?? action.chunkGapMs ?? 0;
    this.#socket.setNoDelay(true);
    this.#socket.on("close", () => {
      if (this.#gone) return;
      this.#gone = true;
      this.#by = "client";
      this.#lost?.("client");
    });
  }

  head(status: number, headers: HeaderList, length: number | undefined): void {
    const framing = this.#action.wrongFraming;
    const lines: string[] = [];
    for (let count = this.#action.flood1xx ?? 0; count > 0; count -= 1) lines.push("HTTP/1.1 102 Processing", "");
    if (this.#action.early103 === true) lines.push("HTTP/1.1 103 Early Hints", "link: </style.css>; rel=preload", "");
    lines.push(`HTTP/1.${framing === "http10" ? 0 : 1} ${status} ${STATUS_CODES[status] ?? "Unknown"}`);
    for (let index = 0; index < headers.length; index += 2)
      lines.push(`${headers[index] ?? ""}: ${headers[index + 1] ?? ""}`);
    if (framing === "hugeHeader") lines.push(`x-huge: ${"h".repeat(HUGE_HEADER_BYTES)}`);
    lines.push(...this.#framingLines(framing, length));
    lines.push("", "");
    if (this.#action.cutBeforeHead === true) {
      this.cut(this.#action.cut === "rst" ? "rst" : "fin");
      return;
    }
    this.#push(Buffer.from(lines.join("\r\n"), "latin1"));
    if (this.#action.cutAfterBytes === 0) this.#cutHere();
  }

  #framingLines(framing: SimAction["wrongFraming"], length: number | undefined): string[] {
    const close = this.#action.closeAfterResponse === true ? [] : ["connection: close"];
    if (this.#action.trailers !== undefined) {
      this.#chunked = true;
      return [...close, `trailer: ${Object.keys(this.#action.trailers).join(", ")}`, "transfer-encoding: chunked"];
    }
    switch (framing) {
      case "noFraming":
      case "http10":
        return ["connection: close"];
      case "negativeCl":
        return ["content-length: -5"];
      case "twoCl":
        return [`content-length: ${length ?? 10}`, `content-length: ${(length ?? 10) + 7}`];
      case "clAndTe":
        this.#chunked = true;
        return [`content-length: ${length ?? 10}`, "transfer-encoding: chunked"];
      case "badChunk":
        this.#chunked = true;
        return ["transfer-encoding: chunked"];
      default:
        this.#chunked = length === undefined;
        return [...close, length === undefined ? "transfer-encoding: chunked" : `content-length: ${length}`];
    }
  }

  write(data: string | Buffer): boolean {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    if (bytes.length > 0) this.#body(this.#chunked ? this.#chunk(bytes) : bytes);
    return this.#queue.length === 0;
  }

  #chunk(bytes: Buffer): Buffer {
    const size = this.#action.wrongFraming === "badChunk" ? "zz" : bytes.length.toString(16);
    return Buffer.concat([Buffer.from(`${size}\r\n`), bytes, Buffer.from("\r\n")]);
  }

  #body(bytes: Buffer): void {
    const holdAt = this.#action.hangAfterBytes;
    if (holdAt !== undefined && this.#bodyBytes + bytes.length >= holdAt) {
      this.#push(bytes.subarray(0, Math.max(0, holdAt - this.#bodyBytes)));
      this.#bodyBytes = holdAt;
      this.#held = true;
      return;
    }
    const limit = this.#action.cutAfterBytes;
    if (limit !== undefined && this.#bodyBytes + bytes.length >= limit) {
      this.#push(bytes.subarray(0, Math.max(0, limit - this.#bodyBytes)));
      this.#cutHere();
      return;
    }
    this.#bodyBytes += bytes.length;
    this.#push(bytes);
  }

  end(): void {
    if (this.#ended || this.#gone) return;
    if (this.#chunked) {
      const trailers = Object.entries(this.#action.trailers ?? {}).map(([name, value]) => `${name}: ${value}\r\n`);
      this.#body(Buffer.from(`0\r\n${trailers.join("")}\r\n`));
    }
    if (this.#held) return;
    this.#ended = true;
    this.#pump();
  }

  raw(bytes: Buffer): void {
    this.#body(bytes);
    this.#ended = true;
    this.#pump();
  }

  drained(callback: () => void): void {
    this.#drain = callback;
  }

  cut(how: "fin" | "rst"): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#queue.length = 0;
    if (how === "rst") resetSocket(this.#socket);
    else this.#socket.end();
    this.#lost?.("engine");
  }

  onFinish(callback: () => void): void {
    this.#finish = callback;
  }

  onLost(callback: (by: LostBy) => void): void {
    this.#lost = callback;
    if (this.#gone) callback(this.#by);
  }

  /** The scripted end: after what is queued so far. */
  #cutHere(): void {
    if (this.#action.cut === "chunkedEnd") this.#push(Buffer.from("0\r\n\r\n"));
    this.#ended = true;
    this.#pump();
  }

  #push(bytes: Buffer): void {
    if (this.#gone || this.#ended || this.#held || bytes.length === 0) return;
    this.#queue.push(bytes);
    this.#pump();
  }

  #pump(): void {
    if (this.#sending || this.#gone) return;
    const first = this.#queue.shift();
    if (first === undefined) {
      if (this.#ended) this.#close();
      else this.#drain?.();
      return;
    }
    this.#sending = true;
    const piece = first.subarray(0, this.#piece);
    if (piece.length < first.length) this.#queue.unshift(first.subarray(piece.length));
    const next = (): void => {
      this.#sending = false;
      this.#pump();
    };
    this.#socket.write(piece, () => {
      if (this.#gone) return;
      if (this.#gapMs > 0 && this.#queue.length > 0) this.#clock.after(this.#gapMs, next);
      else if (Number.isFinite(this.#piece) || this.#action.splitCrLf === true) setImmediate(next);
      else next();
    });
  }

  #close(): void {
    this.#gone = true;
    const broken = this.#action.cutAfterBytes !== undefined;
    if (broken && this.#action.cut === "rst") resetSocket(this.#socket);
    else this.#socket.end();
    if (broken) this.#lost?.("engine");
    else this.#finish?.();
  }
}
