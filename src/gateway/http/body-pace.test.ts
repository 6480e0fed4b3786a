import assert from "node:assert/strict";
import { test } from "node:test";
import { TimerWheel } from "../../kernel/timer-wheel.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { BufferBudget } from "../buffer-budget.ts";
import type { BodyReader, ClientRequest } from "./client-port.ts";
import { RequestBody, type BodyEnd } from "./request-body.ts";

for (const { bytesPerS, ends } of [
  { bytesPerS: 900, ends: "whole" }, // What comes of a byte a millisecond.
  { bytesPerS: 100, ends: "tooSlow" },
])
  test(`a body of three minutes at ${bytesPerS} bytes a second ends as ${ends} [80.G11]`, async () => {
    const clock = new VirtualClock();
    let reader: BodyReader | undefined;
    const req = { rawHeaders: ["transfer-encoding", "chunked"], readBody: (one: BodyReader) => (reader = one) };
    const body = new RequestBody(req as unknown as ClientRequest, {
      clock,
      wheel: new TimerWheel(clock),
      budget: new BufferBudget(1_000_000),
      bytesMax: 1_000_000,
      idleMs: 60_000,
    });
    const seen: BodyEnd[] = [];
    body.collect(
      null,
      () => {},
      (end) => seen.push(end),
    );
    for (let s = 0; s < 180; s += 1) {
      await clock.advance(1_000);
      reader?.onData(Buffer.alloc(bytesPerS));
    }
    reader?.onEnd();
    assert.deepEqual(
      seen.map(({ kind }) => kind),
      [ends],
    );
  });
