import { isObject } from "./json.ts";
import { jsonHeaders, sseHeaders, typedHeaders, type Call } from "./call.ts";
import type { Garbage } from "./script.ts";
import { mix } from "./token-text.ts";

const LONG_LINE_BYTES = 2 * 1024 * 1024;
const FILL = Buffer.alloc(16_384, "x");

/** Answers that the script dictates whole, without slot or tokens. True when it took the call. */
export function replyByScript(call: Call, stream: boolean): boolean {
  const { action } = call;
  if (action.replyWith !== undefined) {
    call.markFailed();
    call.record.head(0);
    call.sink.raw(Buffer.from(action.replyWith, "latin1"));
    return true;
  }
  if (action.status !== undefined || action.body !== undefined) {
    const status = action.status ?? 200;
    const body = action.body;
    const text =
      typeof body === "string"
        ? body
        : JSON.stringify(body ?? { error: { message: `scripted ${status}`, type: "sim", param: null, code: status } });
    const headers =
      typeof body === "string" && !isObject(body)
        ? typedHeaders(call.dialect, "text/plain")
        : jsonHeaders(call.dialect, status);
    call.reply(status, headers, bodyless(status) ? "" : text);
    return true;
  }
  if (action.garbage !== undefined) {
    call.markFailed();
    replyGarbage(call, action.garbage, stream);
    return true;
  }
  if (action.bigBodyBytes !== undefined) {
    replyBig(call, action.bigBodyBytes, stream);
    return true;
  }
  return false;
}

const bodyless = (status: number): boolean => status === 204 || status === 304 || status < 200;

function replyGarbage(call: Call, garbage: Garbage, stream: boolean): void {
  const headers = stream ? sseHeaders(call.dialect) : jsonHeaders(call.dialect, 200);
  switch (garbage) {
    case "binary":
      call.reply(200, headers, Buffer.from(Array.from({ length: 4_096 }, (_, index) => mix(index, 7) % 256)));
      return;
    case "html200":
      call.reply(
        200,
        typedHeaders(call.dialect, "text/html"),
        "<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>\n",
      );
      return;
    case "badSse":
      call.reply(
        200,
        sseHeaders(call.dialect),
        'data {"no":"colon"}\nda\n\nretry: soon\nid\n: ok\nfoo: bar\ndata: {"a":\n\ndata: ]]]\n\n',
      );
      return;
    case "halfJson":
      call.reply(
        200,
        jsonHeaders(call.dialect, 200),
        '{"id":"chatcmpl-half","object":"chat.completion","choices":[{"ind',
      );
      return;
    case "longLine":
      call.reply(200, headers, `data: ${"x".repeat(LONG_LINE_BYTES)}`);
      return;
    case "nul":
      call.reply(
        200,
        headers,
        stream
          ? 'data: {"choices":[{"delta":{"content":"\0\0"}}]}\n\n\0\0\n\n'
          : '{"choices":[{"message":{"content":"\0\0"}}]}\0',
      );
      return;
    case "ansi":
      call.reply(
        200,
        headers,
        stream ? "data: \x1b[2J\x1b[31mred\x1b[0m\r\x1b]0;title\x07\n\n" : '{"error":"\x1b[2J\x1b[31mred\x1b[0m"}',
      );
      return;
  }
}

/** A body of about `size` bytes, written only as fast as the reader takes it. */
function replyBig(call: Call, size: number, stream: boolean): void {
  const piece = stream
    ? Buffer.from(`data: {"choices":[{"index":0,"delta":{"content":"${FILL.toString()}"},"finish_reason":null}]}\n\n`)
    : FILL;
  const first = Buffer.from(
    stream ? "" : '{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"',
  );
  const last = Buffer.from(
    stream ? 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n' : '"}}]}',
  );
  const pieces = Math.max(1, Math.ceil(size / piece.length));
  const length = stream ? undefined : first.length + pieces * piece.length + last.length;
  call.head(200, stream ? sseHeaders(call.dialect) : jsonHeaders(call.dialect, 200), length);
  call.write(first);
  let written = 0;
  const more = (): void => {
    while (written < pieces && !call.gone) {
      written += 1;
      if (!call.write(piece)) {
        call.sink.drained(more);
        return;
      }
    }
    call.write(last);
    call.end();
  };
  more();
}
