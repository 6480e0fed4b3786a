import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import type { BodyReader, ClientRequest } from "../http/client-port.ts";
import { BodyStream } from "./body-stream.ts";

/** A client that the test sends for, and that notes how it was held up. */
function aRequest(): { readonly req: ClientRequest; readonly reader: () => BodyReader; readonly held: string[] } {
  const held: string[] = [];
  let reader: BodyReader | undefined;
  const req = {
    readBody: (given: BodyReader) => (reader = given),
    pauseBody: () => held.push("pause"),
    resumeBody: () => held.push("resume"),
  } as unknown as ClientRequest;
  return {
    req,
    held,
    reader: () => {
      if (reader === undefined) throw new Error("nobody reads the body");
      return reader;
    },
  };
}

test("a client that sends faster than its file is kept is held up, and goes on when there is room [20.J7 80.I9]", async () => {
  const { req, reader, held } = aRequest();
  const stream = new BodyStream(req, { clock: new VirtualClock(), idleMs: 1_000 });
  stream.begin(null);
  for (let i = 0; i < 9; i += 1) reader().onData(Buffer.alloc(64 * 1024, i));
  assert.deepEqual(held, ["pause"]);
  for (let i = 0; i < 9; i += 1) assert.equal((await stream.next())?.[0], i);
  const next = stream.next();
  assert.deepEqual(held, ["pause", "resume"]);
  reader().onData(Buffer.from("last"));
  assert.equal((await next)?.toString(), "last");
  reader().onEnd();
  assert.equal(await stream.next(), undefined);
});

test("a file that comes too slowly, or breaks off, is no file [20.J7]", async () => {
  const clock = new VirtualClock();
  const slow = aRequest();
  const stream = new BodyStream(slow.req, { clock, idleMs: 1_000 });
  stream.begin(null);
  slow.reader().onData(Buffer.from("a"));
  await stream.next();
  const late = assert.rejects(stream.next(), { code: "REQUEST_TIMEOUT" });
  await clock.advance(1_001);
  await late;
  const left = aRequest();
  const broken = new BodyStream(left.req, { clock, idleMs: 1_000 });
  broken.begin(null);
  left.reader().onData(Buffer.from("a"));
  left.reader().onBroken();
  assert.equal((await broken.next())?.toString(), "a");
  await assert.rejects(broken.next(), { code: "CLIENT_CLOSED" });
});

test("a steady client may take its time, and the time in which it was held up is not its own [20.J7]", async () => {
  const clock = new VirtualClock();
  const { req, reader } = aRequest();
  const stream = new BodyStream(req, { clock, idleMs: 1_000 });
  stream.begin(null);
  for (let i = 0; i < 5; i += 1) {
    const next = stream.next();
    await clock.advance(900);
    reader().onData(Buffer.alloc(2_000));
    assert.equal((await next)?.length, 2_000);
    await clock.advance(60_000); // What came is kept meanwhile.
  }
});
