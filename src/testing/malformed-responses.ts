/**
 * Answers of broken or hostile engines. `verdict` is what a strict client makes of them:
 *   refused    not valid HTTP/1.1, known without waiting for the connection to close
 *   unfinished valid so far; the engine closes before it is complete
 *   spoilt     a complete answer, behind which the connection must not be used again
 */
export interface MalformedResponse {
  readonly name: string;
  readonly bytes: string;
  readonly verdict: "refused" | "unfinished" | "spoilt";
  readonly method?: "HEAD";
}

/** What must never reach another request. */
export const LEFTOVER = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nleftover";

const OK = "HTTP/1.1 200 OK\r\n";
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`;

const refused = (name: string, bytes: string): MalformedResponse => ({ name, bytes, verdict: "refused" });
const unfinished = (name: string, bytes: string): MalformedResponse => ({ name, bytes, verdict: "unfinished" });
const spoilt = (name: string, bytes: string, method?: "HEAD"): MalformedResponse => ({
  name,
  bytes,
  verdict: "spoilt",
  ...(method === undefined ? {} : { method }),
});

export const MALFORMED_RESPONSES: readonly MalformedResponse[] = [
  // Two ways to frame the body.
  refused(
    "Content-Length, then Transfer-Encoding",
    `${OK}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${LEFTOVER}`,
  ),
  refused(
    "Transfer-Encoding, then Content-Length",
    `${OK}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n${LEFTOVER}`,
  ),
  refused("two lengths that differ", `${OK}Content-Length: 0\r\nContent-Length: 8\r\n\r\n${LEFTOVER}`),
  refused("two equal lengths", `${OK}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a list of lengths", `${OK}Content-Length: 3, 3\r\n\r\nabc`),
  refused("a list of lengths that differ", `${OK}Content-Length: 3, 4\r\n\r\nabcd`),
  // Lengths that are no decimal numbers.
  refused("a negative length", `${OK}Content-Length: -1\r\n\r\n${LEFTOVER}`),
  refused("a length with plus", `${OK}Content-Length: +3\r\n\r\nabc`),
  refused("a hexadecimal length", `${OK}Content-Length: 0x3\r\n\r\nabc`),
  refused("a length with an underscore", `${OK}Content-Length: 1_0\r\n\r\n0123456789`),
  refused("a length with a blank inside", `${OK}Content-Length: 1 0\r\n\r\n0123456789`),
  refused("a fractional length", `${OK}Content-Length: 3.0\r\n\r\nabc`),
  refused("an exponent as length", `${OK}Content-Length: 1e1\r\n\r\n0123456789`),
  refused("an empty length", `${OK}Content-Length:\r\n\r\nabc`),
  refused("a length beyond every number", `${OK}Content-Length: 99999999999999999999999\r\n\r\nabc`),
  refused("a length of words", `${OK}Content-Length: three\r\n\r\nabc`),
  // Transfer codings that are not exactly chunked.
  refused("chunked twice", `${OK}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n`),
  refused("chunked on two lines", `${OK}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`),
  refused("chunked, then identity", `${OK}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`),
  refused("gzip, then chunked", `${OK}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`),
  refused("identity alone", `${OK}Transfer-Encoding: identity\r\n\r\nabc`),
  refused("a misspelt coding", `${OK}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`),
  refused("a quoted coding", `${OK}Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n`),
  refused("a coding with a parameter", `${OK}Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n`),
  refused("a coding behind a vertical tab", `${OK}Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n`),
  refused("an empty coding", `${OK}Transfer-Encoding:\r\n\r\nabc`),
  refused("chunked in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
  // Lines and names.
  refused("bare LF behind the status line", "HTTP/1.1 200 OK\nContent-Length: 3\r\n\r\nabc"),
  refused("bare LF behind a header", `${OK}Content-Length: 3\n\r\nabc`),
  refused("bare LF as the blank line", `${OK}Content-Length: 3\r\n\nabc`),
  refused("bare LF throughout", "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc"),
  refused("bare CR inside a value", `${OK}X-A: b\rContent-Length: 9\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a folded header", `${OK}X-A: b\r\n c\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a folded header with a tab", `${OK}X-A: b\r\n\tContent-Length: 9\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a folded first header", `${OK} X-A: b\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a blank before the colon", `${OK}Content-Length : 3\r\n\r\nabc`),
  refused("a blank inside a name", `${OK}Content Length: 3\r\n\r\nabc`),
  refused("an empty name", `${OK}: b\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a line without a colon", `${OK}Content-Length\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a NUL in a value", `${OK}X-A: b\0c\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a NUL in a name", `${OK}X\0A: b\r\nContent-Length: 3\r\n\r\nabc`),
  refused("an escape sequence in a value", `${OK}X-A: \x1b[31m\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a name beyond ASCII", `${OK}X-\xe4: b\r\nContent-Length: 3\r\n\r\nabc`),
  // The status line.
  refused("no HTTP at all", "hello, this is not HTTP\r\n\r\n"),
  refused("HTTP/0.9 style", "<html>hello</html>"),
  refused("a record of TLS", "\x15\x03\x01\x00\x02\x02\x46"),
  refused("HTTP/2 in words", "HTTP/2 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
  refused("HTTP/1.2", "HTTP/1.2 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
  refused("lower case http", "http/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
  refused("a status of two digits", "HTTP/1.1 20 OK\r\nContent-Length: 3\r\n\r\nabc"),
  refused("a status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 3\r\n\r\nabc"),
  refused("status 099", "HTTP/1.1 099 Odd\r\nContent-Length: 3\r\n\r\nabc"),
  refused("status 999", "HTTP/1.1 999 Odd\r\nContent-Length: 3\r\n\r\nabc"),
  refused("two blanks before the status", "HTTP/1.1  200 OK\r\nContent-Length: 3\r\n\r\nabc"),
  refused("a blank line first", `\r\n${OK}Content-Length: 3\r\n\r\nabc`),
  refused("ICY", "ICY 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
  // Sizes.
  refused("a header of 1 MB", `${OK}X-A: ${"a".repeat(1_000_000)}\r\nContent-Length: 3\r\n\r\nabc`),
  refused("a header line without an end", `${OK}X-A: ${"a".repeat(70_000)}`),
  refused("300 headers", `${OK}${"X-A: b\r\n".repeat(300)}Content-Length: 3\r\n\r\nabc`),
  // Informational answers.
  refused(
    "a flood of 103",
    `${"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100)}${OK}Content-Length: 3\r\n\r\nabc`,
  ),
  refused(
    "a switch of protocols",
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n${LEFTOVER}`,
  ),
  // Chunks.
  refused("a chunk size with 0x", `${CHUNKED}0x3\r\nabc\r\n0\r\n\r\n`),
  refused("a chunk size with plus", `${CHUNKED}+3\r\nabc\r\n0\r\n\r\n`),
  refused("a negative chunk size", `${CHUNKED}-3\r\nabc\r\n0\r\n\r\n`),
  refused("a chunk size with an underscore", `${CHUNKED}0_3\r\nabc\r\n0\r\n\r\n`),
  refused("a chunk size behind a blank", `${CHUNKED} 3\r\nabc\r\n0\r\n\r\n`),
  refused("a chunk size before a blank", `${CHUNKED}3 \r\nabc\r\n0\r\n\r\n`),
  refused("an empty chunk size", `${CHUNKED}\r\nabc\r\n0\r\n\r\n`),
  refused("a chunk size of letters", `${CHUNKED}xyz\r\nabc\r\n0\r\n\r\n`),
  refused("a chunk size of 17 digits", `${CHUNKED}00000000000000003\r\nabc\r\n0\r\n\r\n`),
  refused("a chunk size that wraps 64 bits", `${CHUNKED}10000000000000003\r\nabc\r\n0\r\n\r\n`),
  refused("a chunk size beyond exact numbers", `${CHUNKED}ffffffffffffffff\r\nabc\r\n0\r\n\r\n`),
  refused("a chunk size line with bare LF", `${CHUNKED}3\nabc\r\n0\r\n\r\n`),
  refused("a chunk that ends in bare LF", `${CHUNKED}3\r\nabc\n0\r\n\r\n`),
  refused("a chunk longer than its size", `${CHUNKED}3\r\nabcd\r\n0\r\n\r\n`),
  refused("a chunk shorter than its size", `${CHUNKED}5\r\nabc\r\n0\r\n\r\n${LEFTOVER}`),
  refused("an endless chunk extension", `${CHUNKED}3;${"a".repeat(5_000)}\r\nabc\r\n0\r\n\r\n`),
  refused("LF in a chunk extension", `${CHUNKED}3;a\nb\r\nabc\r\n0\r\n\r\n`),
  refused("CR in a chunk extension", `${CHUNKED}3;a\rb\r\nabc\r\n0\r\n\r\n`),
  refused("trailers of 100 KB", `${CHUNKED}3\r\nabc\r\n0\r\nX-A: ${"a".repeat(100_000)}\r\n\r\n`),
  refused("a folded trailer", `${CHUNKED}3\r\nabc\r\n0\r\nX-A: b\r\n c\r\n\r\n`),
  refused("a last chunk followed by data", `${CHUNKED}3\r\nabc\r\n0\r\nabc\r\n\r\n`),
  // Ends too early.
  unfinished("half a status line", "HTTP/1.1 2"),
  unfinished("half a head", `${OK}Content-Le`),
  unfinished("a head without its blank line", `${OK}Content-Length: 3\r\n`),
  unfinished("a body shorter than its length", `${OK}Content-Length: 30\r\n\r\nabc`),
  unfinished("a body without its last chunk", `${CHUNKED}3\r\nabc\r\n`),
  unfinished("half a chunk size", `${CHUNKED}3\r\nabc\r\n1`),
  unfinished("a last chunk without the end", `${CHUNKED}3\r\nabc\r\n0\r\n`),
  unfinished("an informational answer alone", "HTTP/1.1 103 Early Hints\r\n\r\n"),
  // Complete, with more behind.
  spoilt("a response behind a length", `${OK}Content-Length: 3\r\n\r\nabc${LEFTOVER}`),
  spoilt("a response behind the last chunk", `${CHUNKED}3\r\nabc\r\n0\r\n\r\n${LEFTOVER}`),
  spoilt("a response behind an empty body", `${OK}Content-Length: 0\r\n\r\n${LEFTOVER}`),
  spoilt("a blank line behind a length", `${OK}Content-Length: 3\r\n\r\nabc\r\n`),
  spoilt("a body behind 204", `HTTP/1.1 204 No Content\r\nContent-Length: 8\r\n\r\nleftover`),
  spoilt("chunks behind 204", `HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`),
  spoilt("a body behind 304", `HTTP/1.1 304 Not Modified\r\nContent-Length: ${LEFTOVER.length}\r\n\r\n${LEFTOVER}`),
  spoilt("a body behind HEAD", `${OK}Content-Length: ${LEFTOVER.length}\r\n\r\n${LEFTOVER}`, "HEAD"),
  spoilt("two whole responses more", `${OK}Content-Length: 3\r\n\r\nabc${LEFTOVER}${LEFTOVER}`),
  spoilt("Connection: close, and more behind", `${OK}Connection: close\r\nContent-Length: 3\r\n\r\nabc${LEFTOVER}`),
];
