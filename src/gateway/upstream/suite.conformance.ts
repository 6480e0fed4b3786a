import assert from "node:assert/strict";
import type { LookupFunction } from "node:net";
import type { Clock } from "../../kernel/clock.ts";
import type { TimerWheel } from "../../kernel/timer-wheel.ts";
import type { ExchangeEnd, ExchangeRecorder } from "../../testing/record-exchange.ts";
import type { UpstreamClient, UpstreamError } from "./port.ts";

export interface ClientTraits {
  readonly name: string;
  readonly make: (options: { clock: Clock; wheel: TimerWheel; lookup?: LookupFunction }) => UpstreamClient;
  /** Gives a chunked body with its framing when asked. */
  readonly passesChunks: boolean;
  /** Knows every shape of the corpus for what it is, and takes 100 as RFC 9110 does. */
  readonly strict: boolean;
}

/** What each part of the conformance suite gets. */
export interface Suite {
  readonly traits: ClientTraits;
  readonly makeClient: (clock?: Clock, lookup?: LookupFunction) => UpstreamClient;
  readonly it: (title: string, body: () => Promise<void>) => void;
}

export const answer = (body: string): string =>
  `HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

export function endOf(recorder: ExchangeRecorder): Promise<ExchangeEnd> {
  return recorder.ended.then((end) => {
    assert.deepEqual(recorder.violations, []);
    return end;
  });
}

export async function errorOf(recorder: ExchangeRecorder): Promise<UpstreamError> {
  const end = await endOf(recorder);
  assert.equal(end.kind, "error");
  return end.kind === "error" ? end.error : assert.fail();
}

export async function bodyOf(recorder: ExchangeRecorder): Promise<string> {
  const end = await endOf(recorder);
  assert.equal(end.kind, "end", JSON.stringify(end));
  return recorder.payload.toString("latin1");
}

/** Waits for something another callback brings about; bounded by the test's own limit. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}
