import { connect, type Socket } from "node:net";
import { systemClock } from "../kernel/clock.ts";

const CALL_MS_MAX = 10_000;

export interface RawAnswer {
  readonly bytes: Buffer;
  /** How the server's side ended: a FIN, a reset, or not at all when `until` held first. */
  readonly end: "fin" | "reset" | "open";
  /** Reads that it took. */
  readonly reads: number;
}

/** A request written by hand and what came back, byte by byte. Rejects after ten seconds. */
export function rawCall(
  port: number,
  request: string | Buffer,
  until?: (received: Buffer) => boolean,
): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    const socket = connect({ port, host: "127.0.0.1", noDelay: true }, () => socket.write(request));
    const timer = systemClock.after(CALL_MS_MAX, () =>
      done(new Error(`no end after ${CALL_MS_MAX} ms: ${Buffer.concat(parts).toString("latin1").slice(-300)}`)),
    );
    const done = (outcome: RawAnswer["end"] | Error): void => {
      timer.cancel();
      socket.destroy();
      if (outcome instanceof Error) reject(outcome);
      else resolve({ bytes: Buffer.concat(parts), end: outcome, reads: parts.length });
    };
    socket.on("data", (part: Buffer) => {
      parts.push(part);
      if (until?.(Buffer.concat(parts)) === true) done("open");
    });
    socket.on("end", () => done("fin"));
    socket.on("error", (error: NodeJS.ErrnoException) => done(error.code === "ECONNRESET" ? "reset" : error));
  });
}

export function postText(path: string, body: string, headers: readonly string[] = []): string {
  const lines = [
    `POST ${path} HTTP/1.1`,
    "host: engine",
    "content-type: application/json",
    `content-length: ${Buffer.byteLength(body)}`,
    ...headers,
    "",
    body,
  ];
  return lines.join("\r\n");
}

/** A connection that has sent its request and is left open; the caller ends it. */
export function openCall(port: number, request: string): Socket {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true }, () => socket.write(request));
  socket.on("error", () => {}); // The tests end these in every way.
  socket.resume();
  return socket;
}
