import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MALFORMED_RESPONSES } from "../../testing/malformed-responses.ts";
import { ExchangeRecorder } from "../../testing/record-exchange.ts";
import { WHOLE_CHUNK_BYTES_MAX } from "./chunk-walker.ts";
import { HEADROOM } from "./read-buffer.ts";
import { ResponseReader } from "./response-reader.ts";

interface Seen {
  readonly state: string;
  readonly status: number | undefined;
  readonly rawHeaders: string[] | undefined;
  readonly framing: string | undefined;
  readonly informational: readonly unknown[];
  readonly payload: string;
  readonly trailers: readonly string[];
  readonly reusable: boolean;
  readonly leftover: number;
}

const sink = { abort() {}, pause() {}, resume() {}, completeFraming: () => Buffer.alloc(0) };

/** Reads `bytes` cut at `cuts`, each piece in memory of its own whose surroundings are garbage. */
function readPieces(
  bytes: Buffer,
  cuts: readonly number[],
  chunks: boolean,
  method = "POST",
): { seen: Seen; recorder: ExchangeRecorder; reader: ResponseReader } {
  const recorder = new ExchangeRecorder({ chunks });
  recorder.exchange = sink;
  const reader = new ResponseReader();
  reader.begin(recorder, method);
  const stops = [...new Set(cuts)].filter((cut) => cut > 0 && cut < bytes.length).toSorted((a, b) => a - b);
  let from = 0;
  let leftover = 0;
  for (const to of [...stops, bytes.length]) {
    const block = Buffer.alloc(HEADROOM + to - from + 7, "\r\n1;");
    bytes.copy(block, HEADROOM, from, to);
    const used = reader.state === "open" ? reader.read(block, HEADROOM, HEADROOM + to - from) - HEADROOM : 0;
    leftover += to - from - used;
    from = to;
  }
  if (reader.state === "open") reader.endByClose();
  assert.deepEqual(recorder.violations, []);
  return {
    recorder,
    reader,
    seen: {
      state: reader.state,
      status: recorder.head?.status,
      rawHeaders: recorder.head?.rawHeaders,
      framing: recorder.head?.framing,
      informational: recorder.informational,
      payload: recorder.payload.toString("latin1"),
      trailers: reader.trailers,
      reusable: reader.reusable,
      leftover,
    },
  };
}

const SAMPLES: readonly { name: string; bytes: string; payload: string }[] = [
  {
    name: "a length",
    bytes:
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\nServer: uvicorn\r\n\r\nhello\r\n\r\nyo",
    payload: "hello\r\n\r\nyo",
  },
  {
    name: "chunks",
    bytes:
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n00b\r\n over\r\nther\r\n1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n",
    payload: "hello over\r\ntherabcdefghijklmnopqrstuvwxyz",
  },
  {
    name: "chunk extensions and trailers",
    bytes:
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n3;x\r\nabc\r\n2\r\nde\r\n0;last\r\nX-Sum: 9\r\nX-Two: \r\n\r\n",
    payload: "helloabcde",
  },
  {
    name: "informational answers first",
    bytes:
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
    payload: "ok",
  },
  {
    name: "neither length nor chunks",
    bytes: "HTTP/1.0 200 OK\r\nContent-Type: a\r\n\r\nuntil the end",
    payload: "until the end",
  },
  { name: "no body", bytes: "HTTP/1.1 204 No Content\r\nX-A:\t b \t\r\n\r\n", payload: "" },
];

for (const sample of SAMPLES) {
  for (const chunks of [false, true]) {
    test(`a response with ${sample.name}, cut at any byte, is read alike ${chunks ? "with its framing" : "as payload"}`, () => {
      const bytes = Buffer.from(sample.bytes, "latin1");
      const whole = readPieces(bytes, [], chunks).seen;
      assert.equal(whole.state, "ended");
      assert.equal(whole.payload, sample.payload);
      assert.deepEqual(readPieces(bytes, Array.from(bytes.keys()), chunks).seen, whole, "byte by byte");
      for (let cut = 1; cut < bytes.length; cut += 1) {
        assert.deepEqual(readPieces(bytes, [cut], chunks).seen, whole, `cut at ${cut}`);
        for (let next = cut + 1; next < bytes.length; next += 11) {
          assert.deepEqual(readPieces(bytes, [cut, next], chunks).seen, whole, `cut at ${cut} and ${next}`);
        }
      }
    });
  }
}

const token = fc
  .string({ unit: fc.constantFrom(..."abcXYZ019-_!~"), minLength: 1, maxLength: 12 })
  .filter((name) => !/^(content-length|transfer-encoding|connection|keep-alive)$/i.test(name));
const value = fc
  .string({ unit: fc.constantFrom(...'ab ;=,"\t\xe4\xff:'), maxLength: 20 })
  .map((text) => text.replace(/^[ \t]+|[ \t]+$/g, ""));
const fields = fc.array(fc.tuple(token, value), { maxLength: 6 });
const anyChunk = fc.record({
  data: fc.string({ unit: fc.constantFrom(..."ab01\r\n;"), minLength: 1, maxLength: 40 }),
  zeros: fc.nat(3),
  upper: fc.boolean(),
  extension: fc.option(fc.string({ unit: fc.constantFrom(...'ab="1;'), maxLength: 9 }), { nil: undefined, freq: 4 }),
});
const lines = (list: readonly (readonly [string, string])[]): string =>
  list.map(([name, text]) => `${name}: ${text}\r\n`).join("");
const sizeLine = (chunk: { data: string; zeros: number; upper: boolean; extension: string | undefined }): string => {
  const size = chunk.data.length.toString(16);
  return `${"0".repeat(chunk.zeros)}${chunk.upper ? size.toUpperCase() : size}${chunk.extension === undefined ? "" : `;${chunk.extension}`}\r\n`;
};

const anyResponse = fc
  .record({
    status: fc.integer({ min: 200, max: 599 }).filter((status) => status !== 204 && status !== 304),
    informational: fc.array(fc.integer({ min: 102, max: 199 }), { maxLength: 3 }),
    headers: fields,
    framing: fc.constantFrom("chunked" as const, "length" as const, "close" as const),
    chunks: fc.array(anyChunk, { maxLength: 8 }),
    trailers: fields,
    crowded: fc.boolean(),
  })
  .map((model) => {
    const payload = model.chunks.map((chunk) => chunk.data).join("");
    const framingLine = {
      chunked: "Transfer-Encoding: chunked\r\n",
      length: `Content-Length: ${payload.length}\r\n`,
      close: "",
    }[model.framing];
    const body =
      model.framing === "chunked"
        ? `${model.chunks.map((chunk) => `${sizeLine(chunk)}${chunk.data}\r\n`).join("")}0\r\n${lines(model.trailers)}\r\n`
        : payload;
    const informational = model.informational
      .map((status) => `HTTP/1.1 ${status} Wait\r\n${lines(model.headers)}\r\n`)
      .join("");
    const bytes = `${informational}HTTP/1.1 ${model.status} Fine\r\n${lines(model.headers)}${framingLine}\r\n${body}`;
    return { model, payload, bytes: Buffer.from(bytes, "latin1") };
  });
const anyCuts = fc.oneof(
  fc.array(fc.nat(600), { maxLength: 12 }),
  fc.constant(Array.from({ length: 1_000 }, (_, i) => i)),
);

test("any valid response in any segmentation gives its own head, payload, trailers and end, with and without its framing [10.X1 10.X3]", () => {
  fc.assert(
    fc.property(anyResponse, anyCuts, fc.boolean(), ({ model, payload, bytes }, cuts, chunks) => {
      const { seen, recorder } = readPieces(bytes, cuts, chunks);
      assert.equal(seen.state, "ended");
      assert.equal(seen.status, model.status);
      assert.equal(seen.framing, model.framing);
      assert.deepEqual(seen.rawHeaders?.slice(0, model.headers.length * 2), model.headers.flat());
      assert.deepEqual(
        recorder.informational.map((one) => one.status),
        model.informational,
      );
      assert.equal(seen.payload, payload);
      assert.deepEqual(seen.trailers, model.framing === "chunked" ? model.trailers.flat() : []);
      assert.equal(seen.leftover, 0);
      if (chunks && model.framing === "chunked") {
        // Untouched but for the extensions, the last chunk and the trailers.
        const expected = model.chunks
          .map((chunk) => `${sizeLine({ ...chunk, extension: undefined })}${chunk.data}\r\n`)
          .join("");
        assert.equal(Buffer.concat(recorder.raw).toString("latin1"), expected);
      }
    }),
    { numRuns: 400 },
  );
});

test("no mutation of a response makes the reader throw, and its verdict does not depend on the segmentation [80.A10]", () => {
  const anyMutation = fc.record({
    at: fc.nat(500),
    kind: fc.constantFrom("set", "insert", "delete", "double", "cut"),
    byte: fc.nat(255),
    length: fc.integer({ min: 1, max: 20 }),
  });
  fc.assert(
    fc.property(
      anyResponse,
      fc.array(anyMutation, { minLength: 1, maxLength: 4 }),
      anyCuts,
      fc.boolean(),
      ({ bytes }, mutations, cuts, chunks) => {
        const mutated = mutations.reduce(mutate, bytes);
        const whole = readPieces(mutated, [], chunks);
        const cut = readPieces(mutated, cuts, chunks);
        // A fault inside a line is seen at once, or at the end of the line when that came in pieces.
        if (whole.seen.state === "open" || cut.seen.state === "open") return;
        assert.equal(cut.seen.state, whole.seen.state);
        assert.equal(cut.seen.payload, whole.seen.payload);
        if (whole.seen.state === "ended") assert.equal(cut.seen.leftover, whole.seen.leftover);
      },
    ),
    { numRuns: 600 },
  );
});

function mutate(bytes: Buffer, mutation: { at: number; kind: string; byte: number; length: number }): Buffer {
  const at = mutation.at % Math.max(1, bytes.length);
  const before = bytes.subarray(0, at);
  const after = bytes.subarray(at);
  switch (mutation.kind) {
    case "set":
      return Buffer.concat([before, Buffer.from([mutation.byte]), after.subarray(1)]);
    case "insert":
      return Buffer.concat([before, Buffer.from([mutation.byte]), after]);
    case "delete":
      return Buffer.concat([before, after.subarray(mutation.length)]);
    case "double":
      return Buffer.concat([before, after.subarray(0, mutation.length), after]);
    default:
      return before;
  }
}

for (const shape of MALFORMED_RESPONSES) {
  test(`of ${shape.name} the verdict is: ${shape.verdict} [80.G15]`, () => {
    const bytes = Buffer.from(shape.bytes, "latin1");
    for (const chunks of [false, true]) {
      for (const cuts of [[], Array.from({ length: Math.min(bytes.length, 3_000) }, (_, i) => i)]) {
        const { seen } = readPieces(bytes, cuts, chunks, shape.method);
        if (shape.verdict === "refused") assert.equal(seen.state, "failed");
        else if (shape.verdict === "unfinished") assert.equal(seen.state, "open");
        else assert.deepEqual([seen.state, seen.leftover > 0 || !seen.reusable], ["ended", true]);
      }
    }
  });
}

test("wherever an engine breaks off, what was passed on can be completed so that another chunk may follow", () => {
  fc.assert(
    fc.property(anyResponse, fc.nat(), anyCuts, ({ model, bytes }, at, cuts) => {
      if (model.framing !== "chunked") return;
      const { recorder, reader } = readPieces(bytes.subarray(0, 1 + (at % bytes.length)), cuts, true);
      if (reader.state !== "open" || recorder.head === undefined) return;
      const passed = Buffer.concat([
        Buffer.from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ...recorder.raw,
        reader.completeFraming(),
        Buffer.from("5\r\nERROR\r\n0\r\n\r\n"),
      ]);
      const { seen } = readPieces(passed, [], false);
      assert.equal(seen.state, "ended");
      assert.equal(seen.leftover, 0);
      assert.match(seen.payload.slice(recorder.payload.length), /^\n*ERROR$/);
      assert.equal(seen.payload.slice(0, recorder.payload.length), recorder.payload.toString("latin1"));
    }),
    { numRuns: 500 },
  );
});

test("a chunk too large to be made up is passed on in pieces of its own framing", () => {
  const size = WHOLE_CHUNK_BYTES_MAX + 1;
  const big = Buffer.alloc(size, "big data;");
  const bytes = Buffer.concat([
    Buffer.from(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n${size.toString(16)}\r\n`),
    big,
    Buffer.from("\r\n2\r\nde\r\n0\r\n\r\n"),
  ]);
  for (const cuts of [
    [],
    [70],
    Array.from({ length: 40 }, (_, i) => 60 + i * 7_001),
    [bytes.length - 13, bytes.length - 14, bytes.length - 15],
  ]) {
    const { recorder, seen } = readPieces(bytes, cuts, true);
    assert.equal(seen.state, "ended");
    const again = readPieces(
      Buffer.concat([
        Buffer.from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ...recorder.raw,
        Buffer.from("0\r\n\r\n"),
      ]),
      [],
      false,
    );
    assert.equal(again.seen.state, "ended");
    assert.equal(again.seen.payload, `abc${big.toString("latin1")}de`);
    assert.equal(seen.payload, again.seen.payload);
    for (let cut = 70; cut < bytes.length - 15; cut += 50_021)
      assert.equal(readPieces(bytes.subarray(0, cut), [61], true).reader.completeFraming().length, 0);
  }
});

test("while paused the reader makes no call, and it goes on where it stopped", () => {
  const bytes = Buffer.from("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
  const recorder = new ExchangeRecorder({ onHead: () => (reader.paused = true), onData: () => false });
  recorder.exchange = sink;
  const reader = new ResponseReader();
  reader.begin(recorder, "GET");
  const block = Buffer.concat([Buffer.alloc(HEADROOM), bytes]);
  const used = reader.read(block, HEADROOM, block.length);
  assert.equal(used, block.length - 3);
  assert.equal(recorder.payload.length, 0);
  reader.paused = false;
  assert.equal(reader.read(block, used, block.length), block.length);
  assert.deepEqual(
    [recorder.payload.toString(), reader.state, reader.paused, reader.pausedByReturn],
    ["abc", "ended", true, true],
  );
});
