/**
 * Requests whose end two readers may place differently, or that one reader takes and another does not. Written by hand
 * from the rules of RFC 9112; each is followed on the wire by a marked second request.
 */
export interface SmugglingShape {
  readonly name: string;
  /** The first request; `marked` is the second one, for shapes that hide it in their body. */
  readonly bytes: (request: FirstRequest) => string;
  /** "refused": one 4xx and the end. "accepted": it is one request by every reader, and the marked one is a second. "swallowed": the marked one is the first one's body. */
  readonly outcome: "refused" | "accepted" | "swallowed";
}

export interface FirstRequest {
  /** Host, Authorization and Content-Type, each line with its end. */
  readonly head: string;
  /** A chat that an engine would answer. */
  readonly body: string;
  readonly marked: string;
}

const POST = "POST /v1/chat/completions HTTP/1.1\r\n";
const hex = (text: string): string => text.length.toString(16);
const chunked = (body: string): string => `${hex(body)}\r\n${body}\r\n0\r\n\r\n`;

type Outcome = SmugglingShape["outcome"];

/** A request with a chunked body and these framing lines. */
const te = (name: string, lines: string, outcome: Outcome = "refused"): SmugglingShape => ({
  name: `TE ${name}`,
  outcome,
  bytes: ({ head, body }) => `${POST}${head}${lines}\r\n${chunked(body)}`,
});
/** A request with a plain body; `N` in the lines stands for its length. */
const cl = (name: string, lines: string, outcome: Outcome = "refused"): SmugglingShape => ({
  name: `CL ${name}`,
  outcome,
  bytes: ({ head, body }) => `${POST}${head}${lines.replaceAll("N", String(body.length))}\r\n${body}`,
});
/** A chunked body written by hand; `N` stands for the hex length, `B` for the body. */
const chunks = (name: string, text: string, outcome: Outcome = "refused"): SmugglingShape => ({
  name: `chunks ${name}`,
  outcome,
  bytes: ({ head, body }) =>
    `${POST}${head}Transfer-Encoding: chunked\r\n\r\n${text.replace("N", hex(body)).replace("B", body)}`,
});
/** A whole head written by hand before a plain body. */
const line = (name: string, requestLine: string, outcome: Outcome = "refused"): SmugglingShape => ({
  name: `line ${name}`,
  outcome,
  bytes: ({ head, body }) => `${requestLine}${head}Content-Length: ${body.length}\r\n\r\n${body}`,
});

const TRANSFER_ENCODING_SHAPES: readonly SmugglingShape[] = [
  te("plain", "Transfer-Encoding: chunked\r\n", "accepted"),
  te("capitals", "TRANSFER-ENCODING: CHUNKED\r\n", "accepted"),
  te("blanks before", "Transfer-Encoding: \t chunked\r\n", "accepted"),
  te("blanks behind", "Transfer-Encoding: chunked \t\r\n"),
  te("xchunked", "tRANSFER-ENCODING: xchunked\r\n"),
  te("chunked, identity", "Transfer-Encoding: chunked, identity\r\n"),
  te("identity, chunked", "Transfer-Encoding: identity, chunked\r\n"),
  te("cow, chunked", "Transfer-Encoding: cow, chunked\r\n"),
  te(",chunked", "Transfer-Encoding: ,chunked\r\n"),
  te("chunked,", "Transfer-Encoding: chunked,\r\n"),
  te("chunked, chunked", "Transfer-Encoding: chunked, chunked\r\n"),
  te("gzip, chunked", "Transfer-Encoding: gzip, chunked\r\n"),
  te("identity", "Transfer-Encoding: identity\r\n"),
  te("empty", "Transfer-Encoding:\r\n"),
  te("with a parameter", "Transfer-Encoding: chunked;q=1\r\n"),
  te("quoted", 'Transfer-Encoding: "chunked"\r\n'),
  te("single quoted", "Transfer-Encoding: 'chunked'\r\n"),
  te("vertical tab before", "Transfer-Encoding: \x0bchunked\r\n"),
  te("form feed behind", "Transfer-Encoding: chunked\x0c\r\n"),
  te("NUL behind", "Transfer-Encoding: chunked\0\r\n"),
  te("high byte behind", "Transfer-Encoding: chunked\xa0\r\n"),
  te("twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
  te("cow then chunked", "Transfer-Encoding: cow\r\nTransfer-Encoding: chunked\r\n"),
  te("chunked then identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
  te("blank before the colon", "Transfer-Encoding : chunked\r\n"),
  te("tab before the colon", "Transfer-Encoding\t: chunked\r\n"),
  te("blank before the name", " Transfer-Encoding: chunked\r\n"),
  te("underscore", "Transfer_Encoding: chunked\r\n"),
  te("NUL in the name", "Transfer-Encoding\0: chunked\r\n"),
  te("folded value", "Transfer-Encoding:\r\n chunked\r\n"),
  te("folded behind", "Transfer-Encoding: chunked\r\n , identity\r\n"),
  te("behind a bare LF", "X-A: b\nTransfer-Encoding: chunked\r\n"),
  te("behind a bare CR", "X-A: b\rTransfer-Encoding: chunked\r\n"),
  te("ended by a bare LF", "Transfer-Encoding: chunked\n"),
  te("CL.TE", "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n"),
  te("TE.CL", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"),
  te("TE.CL of zero", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"),
  te("TE.TE with CL", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\nTransfer-encoding: cow\r\n"),
  te("CL with a misspelt TE", "Content-Length: 6\r\nTransfer-Encoding: xchunked\r\n"),
  te("CL with TE behind an underscore", "Content-Length: 6\r\nTransfer_Encoding: chunked\r\n"),
  {
    name: "TE in HTTP/1.0",
    outcome: "refused",
    bytes: ({ head, body }) =>
      `POST /v1/chat/completions HTTP/1.0\r\n${head}Transfer-Encoding: chunked\r\n\r\n${chunked(body)}`,
  },
];

const LENGTH_SHAPES: readonly SmugglingShape[] = [
  cl("plain", "Content-Length: N\r\n", "accepted"),
  cl("leading zeros", "Content-Length: 00N\r\n", "accepted"),
  cl("two equal", "Content-Length: N\r\nContent-Length: N\r\n"),
  cl("two different", "Content-Length: N\r\nContent-Length: 6\r\n"),
  cl("two different, the first short", "Content-Length: 5\r\nContent-Length: N\r\n"),
  cl("a list of equals", "Content-Length: N, N\r\n"),
  cl("a list", "Content-Length: 5, N\r\n"),
  cl("plus sign", "Content-Length: +N\r\n"),
  cl("minus sign", "Content-Length: -N\r\n"),
  cl("hexadecimal", "Content-Length: 0xN\r\n"),
  cl("exponent", "Content-Length: 1e1\r\n"),
  cl("decimal point", "Content-Length: N.0\r\n"),
  cl("blank inside", "Content-Length: 1 N\r\n"),
  cl("underscore inside", "Content-Length: 1_0\r\n"),
  cl("empty", "Content-Length:\r\n"),
  cl("beyond 64 bits", "Content-Length: 18446744073709551617\r\n"),
  cl("letters behind", "Content-Length: Nabc\r\n"),
  cl("digits of another script", "Content-Length: \xd9\xa5\r\n"),
  cl("blank before the colon", "Content-Length : N\r\n"),
  cl("underscore in the name", "Content_Length: N\r\n"),
  cl("folded", "Content-Length: 5\r\n 6\r\n"),
  cl("behind a bare CR", "X-A: b\rContent-Length: N\r\n"),
  cl("behind a bare LF", "X-A: b\nContent-Length: N\r\n"),
  {
    name: "CL.0 on a route that reads no body",
    outcome: "swallowed",
    bytes: ({ head, marked }) => `GET /v1/models HTTP/1.1\r\n${head}Content-Length: ${marked.length}\r\n\r\n`,
  },
  {
    name: "CL.0 on an open route",
    outcome: "swallowed",
    bytes: ({ marked }) => `GET /healthz HTTP/1.1\r\nHost: g\r\nContent-Length: ${marked.length}\r\n\r\n`,
  },
];

const CHUNK_SHAPES: readonly SmugglingShape[] = [
  chunks("plain", "N\r\nB\r\n0\r\n\r\n", "accepted"),
  chunks("leading zeros and capitals", "000N\r\nB\r\n000\r\n\r\n", "accepted"),
  chunks("an extension", "N;name=value\r\nB\r\n0\r\n\r\n", "accepted"),
  chunks("a trailer named authorization", "N\r\nB\r\n0\r\nAuthorization: Bearer nobody\r\n\r\n", "accepted"),
  chunks("a trailer named content-length", "N\r\nB\r\n0\r\nContent-Length: 5\r\n\r\n"),
  chunks("0x", "0xN\r\nB\r\n0\r\n\r\n"),
  chunks("plus sign", "+N\r\nB\r\n0\r\n\r\n"),
  chunks("minus sign", "-N\r\nB\r\n0\r\n\r\n"),
  chunks("underscore", "1_N\r\nB\r\n0\r\n\r\n"),
  chunks("blank before", " N\r\nB\r\n0\r\n\r\n"),
  chunks("blank behind", "N \r\nB\r\n0\r\n\r\n"),
  chunks("no digits", "\r\nB\r\n0\r\n\r\n"),
  chunks("not hexadecimal", "zz\r\nB\r\n0\r\n\r\n"),
  chunks("17 digits", "1000000000000000N\r\nB\r\n0\r\n\r\n"),
  chunks("2^64 more", "100000000000000N0\r\nB\r\n0\r\n\r\n"),
  chunks("bare LF behind the size", "N\nB\r\n0\r\n\r\n"),
  chunks("bare CR behind the size", "N\rB\r\n0\r\n\r\n"),
  chunks("bare LF behind the data", "N\r\nB\n0\r\n\r\n"),
  chunks("data longer than the size", "N\r\nBXX\r\n0\r\n\r\n"),
  chunks("data not closed", "N\r\nB0\r\n\r\n"),
  chunks("LF in an extension", "N;a\nb\r\nB\r\n0\r\n\r\n"),
  chunks("NUL in an extension", "N;a\0b\r\nB\r\n0\r\n\r\n"),
  chunks("an extension of 20 KB", `N;${"a".repeat(20_000)}\r\nB\r\n0\r\n\r\n`),
  chunks("last chunk with a bare LF", "N\r\nB\r\n0\n\r\n"),
  chunks("body ended by a bare LF", "N\r\nB\r\n0\r\n\n"),
];

const HEAD_SHAPES: readonly SmugglingShape[] = [
  line("plain", POST, "accepted"),
  line("an empty line before", `\r\n${POST}`, "accepted"),
  line("two blanks", "POST  /v1/chat/completions HTTP/1.1\r\n", "accepted"),
  line("a tab", "POST\t/v1/chat/completions HTTP/1.1\r\n"),
  line("no version", "POST /v1/chat/completions\r\n"),
  line("HTTP/0.9", "POST /v1/chat/completions HTTP/0.9\r\n"),
  line("HTTP/1.2", "POST /v1/chat/completions HTTP/1.2\r\n"),
  line("HTTP/2.0", "POST /v1/chat/completions HTTP/2.0\r\n"),
  line("HTTP/1.10", "POST /v1/chat/completions HTTP/1.10\r\n"),
  line("lower case version", "POST /v1/chat/completions http/1.1\r\n"),
  line("words behind the version", "POST /v1/chat/completions HTTP/1.1 x\r\n"),
  line("bare LF", "POST /v1/chat/completions HTTP/1.1\n"),
  line("bare CR", "POST /v1/chat/completions HTTP/1.1\r"),
  line("NUL in the target", "POST /v1/chat/completions\0 HTTP/1.1\r\n"),
  line("high byte in the target", "POST /v1/chat/completions\xe9 HTTP/1.1\r\n"),
  line("absolute form", "POST http://g/v1/chat/completions HTTP/1.1\r\n"),
  line("authority form", "POST g:80 HTTP/1.1\r\n"),
  line("asterisk form", "OPTIONS * HTTP/1.1\r\n"),
  line("a header without a colon", `${POST}NoColon\r\n`),
  line("a header without a name", `${POST}: value\r\n`),
  line("a blank in a header's name", `${POST}X Y: value\r\n`),
  line("a parenthesis in a header's name", `${POST}X(Y): value\r\n`),
  line("NUL in a value", `${POST}X-A: a\0b\r\n`),
  line("CR in a value", `${POST}X-A: a\rb\r\n`),
  line("a folded value", `${POST}X-A: a\r\n b\r\n`),
  line("a first header that is folded", `${POST} X-A: a\r\n`),
  line("a second Host", `${POST}Host: other\r\n`),
  line("a second Authorization", `${POST}Authorization: Bearer other\r\n`),
  line("an expectation that nobody knows", `${POST}Expect: 200-ok\r\n`),
  {
    name: "line no Host",
    outcome: "refused",
    bytes: ({ head, body }) =>
      `${POST}${head.replace(/^Host:.*\r\n/m, "")}Content-Length: ${body.length}\r\n\r\n${body}`,
  },
  {
    name: "line head ended by CRLF and LF",
    outcome: "refused",
    bytes: ({ head, body }) => `${POST}${head}Content-Length: ${body.length}\r\n\n${body}`,
  },
  { name: "line the preface of HTTP/2", outcome: "refused", bytes: () => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" },
  { name: "line a handshake of TLS", outcome: "refused", bytes: () => "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" },
];

export const SMUGGLING_SHAPES: readonly SmugglingShape[] = [
  ...TRANSFER_ENCODING_SHAPES,
  ...LENGTH_SHAPES,
  ...CHUNK_SHAPES,
  ...HEAD_SHAPES,
];
