import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { RequestReader } from "./request-reader.ts";

interface Seen {
  readonly requests: { method: string; target: string; minor: number; rawHeaders: readonly string[]; body: string }[];
  fault: string | undefined;
  readonly flags: { tooLarge: boolean; unknownMethod: boolean; inBody: boolean };
  readonly begun: boolean;
}

/** Reads the bytes cut at `cuts`, out of memory that is overwritten behind each read. */
function readPieces(text: string, cuts: readonly number[] = []): Seen {
  const bytes = Buffer.from(text, "latin1");
  const requests: Seen["requests"] = [];
  let body: Buffer[] = [];
  const reader = new RequestReader({
    onHead: () => {
      const { method, target, minor, fields } = reader.head;
      requests.push({ method, target, minor, rawHeaders: fields, body: "(open)" });
      body = [];
    },
    onBody: (piece) => void body.push(piece),
    onBodyEnd: () => {
      const last = requests.at(-1);
      if (last !== undefined) last.body = Buffer.concat(body).toString("latin1");
    },
  });
  const stops = [...new Set(cuts)].filter((cut) => cut > 0 && cut < bytes.length).toSorted((a, b) => a - b);
  const block = Buffer.alloc(bytes.length + 16);
  let from = 0;
  for (const to of [...stops, bytes.length]) {
    bytes.copy(block, 3, from, to);
    for (let at = 3; at < 3 + to - from && reader.fault === undefined;) {
      at = reader.read(block, at, 3 + to - from);
      if (reader.ended) reader.next();
    }
    block.fill("x");
    from = to;
  }
  const { head, fault, faultInBody, begun } = reader;
  return {
    requests,
    fault,
    flags: { tooLarge: head.tooLarge, unknownMethod: head.unknownMethod, inBody: faultInBody },
    begun,
  };
}

const POST = "POST /v1/x?y=1 HTTP/1.1\r\nHost: h\r\n";
const GET = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

test("requests are read one after another, however they are framed [10.X2]", () => {
  const { requests, fault } = readPieces(
    `${POST}Content-Length: 5\r\n\r\nhello${GET}\r\n${POST}Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n1\r\n!\r\n0\r\nX-T: 1\r\n\r\n${GET}`,
  );
  assert.equal(fault, undefined);
  assert.deepEqual(
    requests.map(({ method, target, body }) => [method, target, body]),
    [
      ["POST", "/v1/x?y=1", "hello"],
      ["GET", "/", ""],
      ["POST", "/v1/x?y=1", "hi!"],
      ["GET", "/", ""],
    ],
  );
  assert.deepEqual(requests[2]?.rawHeaders, ["Host", "h", "Transfer-Encoding", "chunked"]);
});

const REFUSED: readonly (readonly [
  string,
  string,
  { tooLarge?: boolean; unknownMethod?: boolean; inBody?: boolean }?,
])[] = [
  ["a handshake of TLS", "\x16\x03\x01\x02\x00"],
  ["a line without a version", "GET /\r\n\r\n"],
  ["another version", "GET / HTTP/1.2\r\nHost: h\r\n\r\n"],
  ["a version in lower case", "GET / http/1.1\r\nHost: h\r\n\r\n"],
  ["a line that goes on behind its version", "GET / HTTP/1.1 x\r\n\r\n"],
  ["a byte above ASCII in the target", "GET /\xe9 HTTP/1.1\r\n\r\n"],
  ["a tab in the request line", "GET\t/ HTTP/1.1\r\n\r\n"],
  ["a bare LF behind the request line", "GET / HTTP/1.1\nHost: h\r\n\r\n"],
  ["a bare LF before it", `\n${GET}`],
  ["a bare LF behind a header", "GET / HTTP/1.1\r\nHost: h\n\r\n"],
  ["a bare CR in a value", "GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n"],
  ["a folded value", "GET / HTTP/1.1\r\nX: y\r\n z\r\n\r\n"],
  ["a blank before the colon", "GET / HTTP/1.1\r\nHost : h\r\n\r\n"],
  ["a header without a colon", "GET / HTTP/1.1\r\nHost\r\n\r\n"],
  ["two lengths", `${POST}Content-Length: 1\r\nContent-Length: 1\r\n\r\na`],
  ["a length and chunks", `${POST}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`],
  ["a length that is no number", `${POST}Content-Length: +1\r\n\r\na`],
  ["an encoding that is not chunked", `${POST}Transfer-Encoding: gzip, chunked\r\n\r\n`],
  ["blanks behind the encoding", `${POST}Transfer-Encoding: chunked \r\n\r\n`],
  ["chunks in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"],
  ["a method that nobody knows", "FETCH / HTTP/1.1\r\nHost: h\r\n\r\n", { unknownMethod: true }],
  ["a method in lower case", "get / HTTP/1.1\r\nHost: h\r\n\r\n", { unknownMethod: true }],
  ["words that are no request", "hello world and HTTP/1.1\r\n\r\n"],
  ["a head above 16 KiB", `GET / HTTP/1.1\r\nX: ${"a".repeat(16 * 1024)}\r\n\r\n`, { tooLarge: true }],
  ["a head above 16 KiB without an end", `GET / HTTP/1.1\r\nX: ${"a".repeat(17 * 1024)}`, { tooLarge: true }],
  ["300 headers", `GET / HTTP/1.1\r\n${"X: y\r\n".repeat(300)}\r\n`, { tooLarge: true }],
  ["a chunk size that is none", `${POST}Transfer-Encoding: chunked\r\n\r\nzz\r\n`, { inBody: true }],
  [
    "a trailer that frames",
    `${POST}Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 1\r\n\r\n`,
    { inBody: true },
  ],
];
for (const [name, text, flags = {}] of REFUSED)
  test(`${name} is a fault, whatever the cuts [10.X2 80.G14]`, () => {
    for (const cuts of [[], Array.from({ length: Math.min(text.length, 200) }, (_, at) => at), [7, 19]]) {
      const seen = readPieces(text, cuts);
      assert.notEqual(seen.fault, undefined);
      assert.deepEqual(seen.flags, { tooLarge: false, unknownMethod: false, inBody: false, ...flags });
    }
  });

test("however the bytes are cut into reads, the same requests are told [10.X2]", () => {
  const anyRequest = fc.oneof(
    fc.constant(GET),
    fc.nat(40).map((length) => `${POST}Content-Length: ${length}\r\n\r\n${"b".repeat(length)}`),
    fc
      .array(
        fc.nat({ max: 20 }).map((length) => length + 1),
        { maxLength: 5 },
      )
      .map(
        (sizes) =>
          `${POST}Transfer-Encoding: chunked\r\n\r\n${sizes.map((size) => `${size.toString(16)}\r\n${"c".repeat(size)}\r\n`).join("")}0\r\n\r\n`,
      ),
  );
  fc.assert(
    fc.property(fc.array(anyRequest, { minLength: 1, maxLength: 5 }), fc.array(fc.nat(600)), (requests, cuts) => {
      const text = requests.join("");
      assert.deepEqual(readPieces(text, cuts), readPieces(text));
      assert.equal(readPieces(text).requests.length, requests.length);
    }),
  );
});

test("whatever bytes come, reading ends, and cut or whole they are judged alike [80.G14]", () => {
  const anyPiece = fc.oneof(
    fc.constantFrom(
      POST,
      GET,
      "\r\n",
      "\n",
      "\r",
      "Content-Length: 3\r\n",
      "Transfer-Encoding: chunked\r\n",
      "0\r\n\r\n",
      "3\r\nabc\r\n",
      ":",
      " ",
    ),
    fc.string({ unit: "binary", maxLength: 6 }).map((text) => Buffer.from(text).toString("latin1")),
  );
  fc.assert(
    fc.property(fc.array(anyPiece, { maxLength: 12 }), fc.array(fc.nat(300)), (pieces, cuts) => {
      const text = pieces.join("");
      const [whole, cut] = [readPieces(text), readPieces(text, cuts)];
      // A fault inside a line that has not ended may be seen later when the line comes in pieces, never another verdict.
      if (whole.fault === undefined || cut.fault !== undefined) assert.deepEqual(cut.requests, whole.requests);
      else assert.deepEqual(cut.requests, whole.requests.slice(0, cut.requests.length));
    }),
  );
});

test("an empty line before a request is nothing that has begun [10.X2]", () => {
  assert.equal(readPieces("\r\n").begun, false);
  assert.equal(readPieces("\r\nG").begun, true);
  assert.equal(readPieces(GET).begun, false);
});
