import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { systemClock } from "../../kernel/clock.ts";
import { TimerWheel } from "../../kernel/timer-wheel.ts";
import { RawServer, type RawCall } from "../../testing/raw-server.ts";
import { aRequest, aTarget } from "../../testing/record-exchange.ts";
import { NetUpstreamClient } from "./net-client.ts";
import type { UpstreamClient } from "./port.ts";

/** Framing and payload of one stream's unit, which the engine repeats; no two streams are alike, nor two places in one. */
function makeUnit(stream: number): Buffer {
  const parts: Buffer[] = [];
  for (let i = 0, seed = stream + 1; i < 300; i += 1) {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    const size = 20 + (seed % 2_500);
    parts.push(
      Buffer.from(`${size.toString(16)}\r\n`),
      Buffer.alloc(size, `${stream}:${i}:${seed};`),
      Buffer.from("\r\n"),
    );
  }
  return Buffer.concat(parts);
}

/** Takes what a client's socket would: keeps the bytes it was given, without copying, until it gets round to them. */
class ComparingSink extends Writable {
  wrongBytes = 0;
  taken = 0;
  readonly #unit: Buffer;
  readonly #turns: number;

  constructor(unit: Buffer, turns: number) {
    super({ highWaterMark: 524_288 });
    this.#unit = unit;
    this.#turns = turns;
  }

  override _write(bytes: Buffer, _: BufferEncoding, done: () => void): void {
    const wait = (turns: number): void => {
      if (turns > 0) setImmediate(() => wait(turns - 1));
      else {
        this.#compare(bytes);
        done();
      }
    };
    wait(this.#turns);
  }

  #compare(bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) {
      const from = this.taken % this.#unit.length;
      const length = Math.min(bytes.length - at, this.#unit.length - from);
      if (bytes.compare(this.#unit, from, from + length, at, at + length) !== 0) this.wrongBytes += length;
      at += length;
      this.taken += length;
    }
  }
}

/** What the relay does: one write per read, a pause when the sink is full, and word about bytes it still needs. */
function relayInto(
  client: UpstreamClient,
  port: number,
  stream: number,
  sink: ComparingSink,
  tellsRetained: boolean,
): Promise<string> {
  return new Promise((resolve) => {
    const exchange = client.exchange(aTarget(port), aRequest(`/${stream}`), {
      onInformational: () => {},
      onHead: () => true,
      onData: () => assert.fail("plain payload"),
      onChunks: (raw) => {
        if (!sink.write(raw)) {
          exchange.pause();
          sink.once("drain", () => exchange.resume());
        }
        return sink.writableLength > 0 && tellsRetained ? "retained" : "done";
      },
      onEnd: () => sink.end(() => resolve("end")),
      onError: (error) => resolve(error.message),
    });
  });
}

async function runStreams(
  streams: number,
  repeats: number,
  tellsRetained: boolean,
): Promise<{ readonly sinks: ComparingSink[]; readonly units: Buffer[] }> {
  const units = Array.from({ length: streams }, (_, stream) => makeUnit(stream));
  await using server = await RawServer.listen({
    onCall: ({ socket, path }: RawCall) => {
      const unit = units[Number(path.slice(1))] as Buffer;
      socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      let left = repeats;
      const more = (): void => {
        left -= 1;
        if (left >= 0) socket.write(unit, more);
        else socket.write("0\r\n\r\n");
      };
      more();
    },
  });
  const client = new NetUpstreamClient({ clock: systemClock, wheel: new TimerWheel(systemClock) });
  // Half of the readers are quick, half are slow.
  const sinks = units.map((unit, stream) => new ComparingSink(unit, stream % 2 === 0 ? 0 : 3));
  const ends = await Promise.all(
    sinks.map((sink, stream) => relayInto(client, server.port, stream, sink, tellsRetained)),
  );
  client.close();
  assert.deepEqual(new Set(ends), new Set(["end"]));
  return { sinks, units };
}

test(
  "20 streams at once, half of them to slow readers, arrive byte for byte with their framing [10.X1]",
  { timeout: 240_000 },
  async () => {
    const repeats = 10;
    const { sinks, units } = await runStreams(20, repeats, true);
    assert.deepEqual(
      sinks.map((sink) => sink.taken),
      units.map((unit) => unit.length * repeats),
    );
    assert.deepEqual(
      sinks.map((sink) => sink.wrongBytes),
      sinks.map(() => 0),
    );
  },
);

test("without the hand-over of buffers the same comparison finds wrong bytes", { timeout: 240_000 }, async () => {
  const { sinks } = await runStreams(4, 3, false);
  assert.ok(sinks.some((sink) => sink.wrongBytes > 0));
});
