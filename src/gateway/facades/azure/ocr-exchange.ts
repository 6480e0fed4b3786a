import { contentTypeOf, decodeBase64, readDocument } from "../../../decide/facades/azure/document.ts";
import {
  readOcrAnswer,
  renderOperation,
  STRING_INDEX_TYPES,
  textLength,
  type OcrReading,
} from "../../../decide/facades/azure/plain-ocr.ts";
import { formatIsoTime, type Clock, type EpochMs } from "../../../kernel/clock.ts";
import { nextTurn } from "../../../kernel/next-turn.ts";
import { headerValue, withoutHeaders } from "../../calls/answer-headers.ts";
import type {
  UpstreamClient,
  UpstreamExchange,
  UpstreamHandler,
  UpstreamHead,
  UpstreamRequest,
} from "../../upstream/port.ts";
import type { Submission } from "./container-exchange.ts";
import { brokenOff, Delivery } from "./gather.ts";

/** Of an OCR engine's answer, which is parsed whole. */
const TEXT_BYTES_MAX = 4 * 1024 * 1024;
const TAKES = "application/json, text/markdown, text/plain";
/** Of the submission's headers, those that the engine is told otherwise: the answer is read here, so it is asked for in a form that can be. */
const REPLACED: ReadonlySet<string> = new Set(["content-type", "content-length", "accept"]);

/**
 * Hands a document's bytes to a plain OCR engine and makes the service's result of its answer, as one exchange.
 *
 * Invariants:
 *   O1. Who waits is told once: by the engine's own error answer, by a whole result, or by an error.
 *   O2. What takes long goes in steps, with the event loop between them.
 */
export class OcrExchange implements UpstreamExchange {
  readonly #client: UpstreamClient;
  readonly #clock: Clock;
  readonly #submission: Submission;
  readonly #ocrPath: string;
  readonly #handler: UpstreamHandler;
  readonly #startedAt: EpochMs;
  #under: UpstreamExchange | null = null;
  #delivery: Delivery | null = null;
  #passing = false;
  #over = false;

  constructor(client: UpstreamClient, clock: Clock, submission: Submission, ocrPath: string, handler: UpstreamHandler) {
    this.#client = client;
    this.#clock = clock;
    this.#submission = submission;
    this.#ocrPath = ocrPath;
    this.#handler = handler;
    this.#startedAt = clock.wall();
    void this.#begin();
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#under?.abort();
    this.#delivery?.abort();
  }

  pause(): void {
    if (this.#passing) this.#under?.pause();
    else this.#delivery?.pause();
  }

  resume(): void {
    if (this.#passing) this.#under?.resume();
    else this.#delivery?.resume();
  }

  completeFraming(): Buffer {
    return this.#passing ? (this.#under?.completeFraming() ?? Buffer.alloc(0)) : Buffer.alloc(0);
  }

  async #begin(): Promise<void> {
    await nextTurn();
    const { request } = this.#submission;
    const reading = readDocument(headerValue(request.headers, "content-type"), request.body);
    if (this.#over) return;
    if (reading.kind === "bytes") return this.#ask(request.body, reading.contentType);
    if (reading.kind !== "base64") return this.#fail("the document's bytes are not in the request");
    const parts: Buffer[] = [];
    const steps = decodeBase64(request.body, reading);
    for (;;) {
      const step = steps.next();
      if (step.done === true) {
        if (!step.value) return this.#fail("base64Source is no base64");
        return this.#ask(parts, contentTypeOf(parts[0] ?? Buffer.alloc(0)));
      }
      parts.push(step.value);
      await nextTurn();
      if (this.#over) return;
    }
  }

  #ask(body: readonly Buffer[], contentType: string): void {
    const { target, request, basePath } = this.#submission;
    const handler = this.#handler;
    const parts: Buffer[] = [];
    let bytes = 0;
    let good: UpstreamHead | null = null;
    const asked: UpstreamRequest = {
      method: "POST",
      path: basePath + this.#ocrPath,
      headers: [...withoutHeaders(request.headers, REPLACED), "content-type", contentType, "accept", TAKES],
      body,
      bodyBytes: body.reduce((sum, part) => sum + part.length, 0),
      freshConnection: request.freshConnection,
    };
    this.#under = this.#client.exchange(target, asked, {
      onInformational: (status, rawHeaders) => handler.onInformational(status, rawHeaders),
      onHead: (head) => {
        if (head.status < 200 || head.status > 299) {
          this.#passing = true;
          return handler.onHead(head);
        }
        good = head;
        return false;
      },
      onData: (payload) => {
        if (this.#passing) return handler.onData(payload);
        bytes += payload.length;
        if (bytes <= TEXT_BYTES_MAX) parts.push(Buffer.from(payload));
        else {
          this.#under?.abort();
          this.#fail(`the OCR engine's answer is larger than ${TEXT_BYTES_MAX} bytes`);
        }
        return true;
      },
      onChunks: (raw, spans) => (this.#passing ? handler.onChunks(raw, spans) : "done"),
      onEnd: (trailers) => {
        if (this.#over) return;
        if (good !== null) return void this.#answer(good, parts);
        this.#over = true;
        handler.onEnd(trailers);
      },
      onError: (error) => {
        if (this.#over) return;
        this.#over = true;
        handler.onError(error);
      },
    });
  }

  async #answer(head: UpstreamHead, parts: readonly Buffer[]): Promise<void> {
    const contentType = headerValue(head.rawHeaders, "content-type") ?? "";
    const reading = readOcrAnswer(contentType, Buffer.concat(parts).toString("utf8"));
    if (reading.kind === "unreadable") return this.#fail(reading.why);
    const { path } = this.#submission.request;
    const wanted = new URLSearchParams(path.slice(path.indexOf("?") + 1)).get("stringIndexType");
    const type = STRING_INDEX_TYPES.find((known) => known === wanted) ?? "textElements";
    const lengths = await lengthsOf(reading, (text) => textLength(text, type));
    if (this.#over) return;
    const times = { createdAt: formatIsoTime(this.#startedAt), updatedAt: formatIsoTime(this.#clock.wall()) };
    const operation = renderOperation(this.#submission.analyze, reading, lengths, type, times);
    this.#delivery = new Delivery(this.#handler, 200, [Buffer.from(operation)]);
    this.#delivery.start();
  }

  #fail(why: string): void {
    if (this.#over) return;
    this.#over = true;
    this.#handler.onError(brokenOff("protocol", why));
  }
}

async function lengthsOf(
  { pages }: Extract<OcrReading, { kind: "pages" }>,
  lengthOf: (text: string) => number,
): Promise<readonly number[]> {
  const lengths: number[] = [];
  for (const page of pages) {
    lengths.push(lengthOf(page.text));
    await nextTurn();
  }
  return lengths;
}
