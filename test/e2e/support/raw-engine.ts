import type { Socket } from "node:net";
import { systemClock } from "../../../src/kernel/clock.ts";

// Pieces of answers for engines that are written by hand.

export const SSE_HEAD =
  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
export const LAST_CHUNK = "0\r\n\r\n";

export function aChunk(payload: string | Uint8Array): Buffer {
  const bytes = Buffer.from(payload as string);
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]);
}

export const anEvent = (body: unknown): string => `data: ${JSON.stringify(body)}\n\n`;
export const aToken = (content: string): string =>
  anEvent({
    id: "c1",
    object: "chat.completion.chunk",
    choices: [{ index: 0, delta: { content }, finish_reason: null }],
  });
export const aFinish = (reason = "stop"): string =>
  anEvent({ id: "c1", object: "chat.completion.chunk", choices: [{ index: 0, delta: {}, finish_reason: reason }] });
export const DONE = "data: [DONE]\n\n";

export const jsonAnswer = (body: unknown, status = "200 OK"): string => {
  const text = JSON.stringify(body);
  return `HTTP/1.1 ${status}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;
};

export const aCompletion = (content = "well"): unknown => ({
  id: "c1",
  object: "chat.completion",
  choices: [{ index: 0, message: { role: "assistant", content }, finish_reason: "stop" }],
  usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
});

/** Writes piece by piece, each in a turn of its own, so that each is likely to be a segment and a read of its own. */
export function writeInTurns(
  socket: Socket,
  pieces: readonly (string | Uint8Array)[],
  done: () => void = () => {},
): void {
  const next = (at: number): void => {
    if (socket.destroyed) return;
    const piece = pieces[at];
    if (piece === undefined) done();
    else socket.write(piece as Uint8Array, () => setImmediate(() => next(at + 1)));
  };
  next(0);
}

/** Writes as the reader takes it, and says how much was written. */
export function writeAsTaken(
  socket: Socket,
  piece: Uint8Array,
  times: number,
  onWritten: (bytes: number) => void,
  done: () => void,
): void {
  let left = times;
  const more = (): void => {
    while (left > 0 && !socket.destroyed) {
      left -= 1;
      onWritten(piece.length);
      if (!socket.write(piece)) {
        socket.once("drain", more);
        return;
      }
    }
    if (left === 0 && !socket.destroyed) done();
  };
  more();
}

/** A moment that lets what was written before arrive by itself. */
export const soon = (then: () => void): void => void systemClock.after(20, then);

/** Again and again until the socket closes. */
export function repeatedly(socket: Socket, everyMs: number, what: () => void): void {
  const next = (): void => {
    if (socket.destroyed) return;
    what();
    systemClock.after(everyMs, next);
  };
  next();
}
