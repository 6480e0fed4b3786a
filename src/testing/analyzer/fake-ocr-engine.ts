import { createHash } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface OcrAnswer {
  readonly status?: number;
  readonly contentType?: string;
  /** Sent as it is when text, else as JSON. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** The connection is reset in place of an answer. */
  readonly reset?: boolean;
}

export interface OcrCall {
  readonly path: string;
  readonly contentType: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly headers: readonly string[];
}

/** An OCR engine as many are written: takes the document's bytes by POST and answers at once. */
export interface FakeOcrEngine extends AsyncDisposable {
  readonly url: string;
  /** Oldest first. */
  readonly calls: readonly OcrCall[];
  /** What the next documents get; the last answer given stays in force. */
  answer(next: OcrAnswer, ...later: readonly OcrAnswer[]): void;
  close(): Promise<void>;
}

export async function startFakeOcrEngine(): Promise<FakeOcrEngine> {
  const calls: OcrCall[] = [];
  let answers: OcrAnswer[] = [{ body: { text: "Hello from the scanner" } }];
  const server = createServer((req, res) => {
    if (req.method === "GET") return void res.writeHead(200).end("ok");
    const hash = createHash("sha256");
    let bytes = 0;
    req.on("data", (part: Buffer) => {
      hash.update(part);
      bytes += part.length;
    });
    req.on("end", () => {
      const contentType = req.headers["content-type"] ?? "";
      calls.push({ path: req.url ?? "", contentType, bytes, sha256: hash.digest("hex"), headers: req.rawHeaders });
      const answer = (answers.length > 1 ? answers.shift() : answers[0]) ?? {};
      if (answer.reset === true) return req.socket.resetAndDestroy();
      const isText = typeof answer.body === "string";
      res.writeHead(answer.status ?? 200, {
        "content-type": answer.contentType ?? (isText ? "text/plain" : "application/json"),
        ...answer.headers,
      });
      return void res.end(isText ? answer.body : JSON.stringify(answer.body ?? {}));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    await closed;
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    answer: (next, ...later) => void (answers = [next, ...later]),
    close,
    [Symbol.asyncDispose]: close,
  };
}
