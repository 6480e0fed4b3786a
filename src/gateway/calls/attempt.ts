import type { StreamEnd } from "../http/routes.ts";
import { codingToUndo } from "../../decide/http/content-coding.ts";
import { isReadAsJson, mayAnswerWith, type AnswerKind } from "../../decide/http/answer-type.ts";
import { BodyEdges } from "../../decide/http/body-edges.ts";
import { beginsLikeJson } from "../../decide/http/body-usage.ts";
import { FirstEventGate, type FirstEvent } from "../../decide/sse/first-event.ts";
import {
  StreamWatcher,
  UNWATCHED_PLACE,
  type StreamPlace,
  type StreamVerdict,
} from "../../decide/sse/stream-watcher.ts";
import { UsageFilter } from "../../decide/sse/usage-filter.ts";
import type { PayloadSpans, UpstreamError, UpstreamExchange, UpstreamHandler, UpstreamHead } from "../upstream/port.ts";
import { headerValue, withoutHeaders } from "./answer-headers.ts";
import type { AttemptEnd, AttemptFailure } from "./attempt-outcome.ts";
import type { ClientWriter } from "./client-writer.ts";
import { DecodedAnswer } from "./decoded-answer.ts";

export interface AttemptOwner {
  readonly writer: ClientWriter;
  readonly streamEnd: StreamEnd;
  readonly answers: AnswerKind;
  /** "http": whatever comes is passed on; "engine": it must be an answer of an inference engine. */
  readonly mode: "engine" | "http";
  readonly removeUsageEvent: boolean;
  /** The answer is rewritten as a whole, so it is held until it is complete. */
  readonly rewritesAnswer: boolean;
  /** Whether an error status may still be tried elsewhere, so that its answer must be held. */
  holdsStatus(status: number): boolean;
  /** Sends the head to the client; false when the client can't be written to any more. */
  commit(attempt: Attempt, head: UpstreamHead, contentLength: number | undefined): boolean;
  onInformational(status: number, rawHeaders: string[]): void;
  /** A complete event (or, without events, a read) came. */
  onProgress(attempt: Attempt, isEvent: boolean): void;
  onFailure(attempt: Attempt, failure: AttemptFailure): void;
  onEnd(attempt: Attempt, end: AttemptEnd, trailers: readonly string[]): void;
}

/** Unary answers up to this size are sent as one piece, and until then can be retried. */
const WHOLE_BYTES_MAX = 256 * 1024;
const REWRITTEN_BYTES_MAX = 4 * 1024 * 1024;
const NOTHING = Buffer.alloc(0);
/** What a body that was decoded on its way no longer has. */
const OF_THE_CODING = new Set(["content-encoding", "content-length", "etag", "accept-ranges", "content-digest"]);
const ERROR_BYTES_MAX = 64 * 1024;
/** Bytes held while the first event is not complete. */
const HELD_BYTES_MAX = 1024 * 1024 + 64 * 1024;

type Mode = "head" | "collect" | "error" | "hold" | "events" | "flow" | "over";

/**
 * One try on one endpoint: decides what of the engine's answer is held back, until when, and in which form the rest goes
 * on to the client.
 *
 * Invariants:
 *   T1. Until `commit` the client has seen nothing of this try, so it can be repeated elsewhere.
 *   T2. A stream's head goes out with its first event, or with a comment; an error as first event is a failure.
 *   T3. After "over" nothing is reported.
 */
export class Attempt implements UpstreamHandler {
  readonly #owner: AttemptOwner;
  readonly #asked: readonly string[];
  /** Takes the body out of a coding that the client did not offer. */
  #decoded: DecodedAnswer | null = null;
  exchange: UpstreamExchange | null = null;
  #mode: Mode = "head";
  #head: UpstreamHead | null = null;
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** The client takes over the engine's framing: what is held stands in chunks. */
  #framed = false;
  #heldSpans: (readonly number[])[] = [];
  /** Of an event stream whose first event is not known yet. */
  #gate: FirstEventGate | null = null;
  #watcher: StreamWatcher | null = null;
  #filter: UsageFilter | null = null;
  /** Of a large JSON answer. */
  #edges: BodyEdges | null = null;
  #isJson = false;
  #passesEvents = false;
  bytesIn = 0;

  /** `asked`: the client's headers, a flat list. */
  constructor(owner: AttemptOwner, asked: readonly string[]) {
    this.#owner = owner;
    this.#asked = asked;
  }

  get watcher(): StreamWatcher | null {
    return this.#watcher;
  }

  /** Where an event stream stands that passes without being looked into. */
  get unwatched(): StreamPlace | undefined {
    return this.#passesEvents ? UNWATCHED_PLACE : undefined;
  }

  get head(): UpstreamHead | null {
    return this.#head;
  }

  /** The answer is read whole before anything is said of it. */
  get collects(): boolean {
    return this.#mode === "collect";
  }

  /** Whether anything of this try went to the client. */
  get committed(): boolean {
    return this.#mode === "events" || (this.#mode === "flow" && this.#owner.writer.committed);
  }

  /** Ends the try from our side; nothing is reported any more. */
  abandon(): void {
    this.#mode = "over";
    this.#held = [];
    this.exchange?.abort();
  }

  onInformational(status: number, rawHeaders: string[]): void {
    this.#owner.onInformational(status, rawHeaders);
  }

  onHead(head: UpstreamHead): boolean {
    const { contentType, encoding } = describeBody(head.rawHeaders);
    const encoded = encoding !== "" && encoding !== "identity";
    const whole = encoded && carriesWhole(head);
    const coding = whole ? codingToUndo(encoding, headerValue(this.#asked, "accept-encoding")) : undefined;
    if (coding === undefined || this.exchange === null) return this.#begin(head, contentType, encoded);
    this.exchange = this.#decoded = new DecodedAnswer(this.exchange, coding, {
      onData: (payload) => this.#take(payload),
      onEnd: (trailers) => this.#finish(trailers),
      onError: (error) => this.#break(error),
    });
    const rawHeaders = withoutHeaders(head.rawHeaders, OF_THE_CODING);
    this.#begin({ ...head, rawHeaders, framing: "close", contentLength: undefined }, contentType, false);
    return false;
  }

  #begin(head: UpstreamHead, contentType: string, encoded: boolean): boolean {
    this.#head = head;
    const passesFraming = head.framing === "chunked" && this.#owner.writer.takesFraming;
    const isEventStream = contentType.startsWith("text/event-stream");
    if (this.#owner.holdsStatus(head.status)) {
      this.#mode = "error";
      return false;
    }
    if (this.#owner.writer.committed && (encoded || !isEventStream)) {
      // Comments have begun a plain event stream, which nothing else can go on with.
      this.#abortWith({ kind: "garbage", message: "the engine answered without a plain event stream" });
      return false;
    }
    if (encoded && this.#owner.rewritesAnswer) {
      this.#abortWith({ kind: "garbage", message: "the engine answered in an encoding that it was not offered" });
      return false;
    }
    if (this.#owner.mode === "http" || encoded || head.framing === "none") {
      this.#mode = "flow";
      this.#passesEvents = isEventStream && !encoded && head.framing !== "none";
      return passesFraming;
    }
    if (isEventStream) {
      this.#mode = "hold";
      if (this.#owner.removeUsageEvent) this.#filter = new UsageFilter();
      return passesFraming && this.#filter === null;
    }
    if (head.status >= 400) {
      this.#mode = "error";
      return false;
    }
    if (contentType.startsWith("text/html")) {
      this.#fail({ kind: "garbage", message: "the engine answered with an HTML page" });
      return false;
    }
    if (head.status >= 300 || !mayAnswerWith(this.#owner.answers, contentType)) {
      const what = head.status >= 300 ? "with a redirect" : "with something that is not JSON";
      this.#abortWith({ kind: "garbage", message: `the engine answered ${what}` });
      return false;
    }
    this.#isJson = isReadAsJson(this.#owner.answers, contentType);
    // Sound that is made while it is heard must not wait for its end; JSON is nothing before its end.
    const flows = !this.#isJson && head.framing !== "length";
    this.#mode = flows ? "flow" : "collect";
    return flows && passesFraming;
  }

  onData(payload: Buffer): boolean {
    return this.#decoded === null ? this.#take(payload) : this.#decoded.push(payload);
  }

  onEnd(trailers: readonly string[]): void {
    if (this.#decoded === null) this.#finish(trailers);
    else this.#decoded.end(trailers);
  }

  onError(error: UpstreamError): void {
    if (this.#decoded === null) this.#break(error);
    else this.#decoded.fail(error);
  }

  #take(payload: Buffer): boolean {
    this.bytesIn += payload.length;
    switch (this.#mode) {
      case "collect":
      case "error":
        this.#collect(payload);
        break;
      case "hold":
        this.#hold(Buffer.from(payload), [0, payload.length]);
        break;
      case "events":
        this.#watch(payload, [0, payload.length], 2);
        this.#pass(payload);
        this.#checkOverflow();
        break;
      case "flow":
        if (!this.#commitFlow()) break;
        this.#owner.onProgress(this, false);
        this.#edges?.push(payload);
        this.#owner.writer.writePayload(payload);
        break;
      default:
        break;
    }
    return !this.#owner.writer.blocked;
  }

  onChunks(raw: Buffer, spans: PayloadSpans): "done" | "retained" {
    this.bytesIn += raw.length;
    switch (this.#mode) {
      case "hold":
        this.#framed = true;
        this.#hold(raw, Array.from(spans.offsets.slice(0, spans.count)));
        return "retained";
      case "events": {
        this.#watch(raw, spans.offsets, spans.count);
        const result = this.#writeFramed(raw);
        this.#checkOverflow();
        return result;
      }
      case "flow":
        if (!this.#commitFlow()) return "done";
        this.#owner.onProgress(this, false);
        return this.#writeFramed(raw);
      default:
        return "done";
    }
  }

  #finish(trailers: readonly string[]): void {
    const head = this.#head;
    const mode = this.#mode;
    if (head === null || mode === "over") return;
    switch (mode) {
      case "error":
        this.#fail({ kind: "status", head, body: Buffer.concat(this.#held) });
        return;
      case "collect":
        this.#endWhole(head, trailers);
        return;
      case "hold": {
        const message = "the stream ended before its first event was whole";
        if (this.#heldBytes === 0) this.#fail({ kind: "emptyAnswer" });
        else this.#fail({ kind: "transport", failure: "truncated", reused: false, message });
        return;
      }
      case "events": {
        const rest = this.#filter?.finish() ?? [];
        for (const part of rest) this.#owner.writer.writePayload(part);
        const verdict = this.#verdict();
        this.#mode = "over";
        this.#owner.onEnd(this, { kind: "stream", verdict, error: null }, trailers);
        return;
      }
      default:
        if (this.#isEmpty(head, this.bytesIn)) return this.#fail({ kind: "emptyAnswer" });
        if (!this.#commitFlow()) return;
        this.#mode = "over";
        this.#owner.onEnd(
          this,
          { kind: "flow", error: null, facts: this.#edges?.facts() ?? null, place: this.unwatched },
          trailers,
        );
    }
  }

  #break(error: UpstreamError): void {
    const mode = this.#mode;
    if (mode === "over") return;
    if (mode === "events") {
      const verdict = this.#verdict();
      this.#mode = "over";
      this.#owner.onEnd(this, { kind: "stream", verdict, error }, []);
    } else if (mode === "flow" && this.#owner.writer.committed) {
      this.#mode = "over";
      this.#owner.onEnd(this, { kind: "flow", error, facts: null, place: this.unwatched }, []);
    } else {
      const { kind: failure, reused, ours = false, message } = error;
      this.#fail({ kind: "transport", failure, reused, ours, message });
    }
  }

  #verdict(): StreamVerdict {
    const watcher = this.#watcher;
    if (watcher === null) throw new Error("a stream went out without being watched");
    return watcher.finish();
  }

  #fail(failure: AttemptFailure): void {
    this.#mode = "over";
    this.#held = [];
    this.#owner.onFailure(this, failure);
  }

  #collect(payload: Buffer): void {
    this.#held.push(Buffer.from(payload));
    this.#heldBytes += payload.length;
    this.#owner.onProgress(this, false);
    const head = this.#head;
    if (head === null) return;
    if (this.#mode === "error") {
      if (this.#heldBytes < ERROR_BYTES_MAX) return;
      this.exchange?.abort();
      this.#fail({ kind: "status", head, body: Buffer.concat(this.#held) });
      return;
    }
    if (this.#owner.rewritesAnswer) {
      if (this.#heldBytes > REWRITTEN_BYTES_MAX)
        this.#abortWith({ kind: "garbage", message: "the engine's answer is too large to be rewritten" });
      return;
    }
    if (this.#heldBytes < WHOLE_BYTES_MAX) return;
    if (this.#isJson && !beginsLikeJson(this.#held[0] ?? NOTHING)) {
      this.#abortWith({ kind: "garbage", message: "the engine's answer is not valid JSON" });
      return;
    }
    this.#mode = "flow";
    const held = this.#held;
    this.#held = [];
    if (this.#isJson) this.#edges = new BodyEdges();
    for (const part of held) this.#edges?.push(part);
    if (!this.#commitFlow()) return;
    for (const part of held) this.#owner.writer.writePayload(part);
  }

  /** Keeps a read back until the first event has been judged. */
  #hold(bytes: Buffer, spans: readonly number[]): void {
    this.#held.push(bytes);
    this.#heldSpans.push(spans);
    this.#heldBytes += bytes.length;
    const gate = (this.#gate ??= new FirstEventGate());
    for (let i = 0; i + 1 < spans.length; i += 2) {
      const seen = gate.push(bytes, spans[i] ?? 0, spans[i + 1] ?? 0);
      if (seen.kind === "more" || (seen.kind === "commentsOnly" && i + 3 < spans.length)) continue;
      this.#judge(seen);
      return;
    }
    if (this.#heldBytes > HELD_BYTES_MAX)
      this.#abortWith({ kind: "garbage", message: "the first event is larger than 1 MiB" });
  }

  #judge(seen: Exclude<FirstEvent, { kind: "more" }>): void {
    if (seen.kind === "overflow") {
      this.#abortWith({ kind: "garbage", message: "the first event is larger than 1 MiB" });
    } else if (seen.kind === "event" && seen.refusal !== undefined && this.#head !== null) {
      const { status, body } = seen.refusal;
      this.#abortWith({ kind: "status", head: { ...this.#head, status }, body });
    } else if (seen.kind === "event" && seen.isError) {
      this.#abortWith({ kind: "errorFirst", message: seen.errorMessage ?? "the engine reported an error" });
    } else if (seen.kind === "event" && seen.isDone && this.#owner.streamEnd === "finishReason") {
      this.#abortWith({ kind: "emptyAnswer" });
    } else {
      this.#release(seen.kind === "event");
    }
  }

  #abortWith(failure: AttemptFailure): void {
    this.exchange?.abort();
    this.#fail(failure);
  }

  /** The stream is good so far: the head and all that was held go out. */
  #release(isEvent: boolean): void {
    const head = this.#head;
    if (head === null || !this.#owner.commit(this, head, undefined)) {
      this.#mode = "over";
      return;
    }
    this.#mode = "events";
    this.#gate = null;
    this.#watcher = new StreamWatcher();
    const held = this.#held;
    const spans = this.#heldSpans;
    this.#held = [];
    this.#heldSpans = [];
    if (isEvent) this.#owner.onProgress(this, true);
    for (const [index, part] of held.entries()) {
      const ranges = spans[index] ?? [];
      this.#watch(part, ranges, ranges.length);
      if (this.#framed) this.#writeFramed(part);
      else this.#pass(part);
    }
    this.#checkOverflow();
  }

  #watch(bytes: Buffer, offsets: ArrayLike<number>, count: number): void {
    const watcher = this.#watcher;
    if (watcher === null) return;
    let progressed = false;
    for (let i = 0; i + 1 < count; i += 2)
      if (watcher.feed(bytes, offsets[i] ?? 0, offsets[i + 1] ?? 0)) progressed = true;
    if (progressed) this.#owner.onProgress(this, true);
  }

  /** Asked when a read has gone out whole, so that the framing can be completed behind it. */
  #checkOverflow(): void {
    if (this.#watcher?.overflow !== true) return;
    const verdict = this.#verdict();
    const completeFraming = this.exchange?.completeFraming() ?? NOTHING;
    this.abandon();
    this.#owner.onEnd(
      this,
      {
        kind: "stream",
        verdict,
        error: { kind: "protocol", message: "an event is larger than 1 MiB", reused: false, completeFraming },
      },
      [],
    );
  }

  #pass(payload: Buffer): void {
    if (this.#filter === null) {
      this.#owner.writer.writePayload(payload);
      return;
    }
    for (const part of this.#filter.push(payload)) this.#owner.writer.writePayload(part);
  }

  #writeFramed(raw: Buffer): "done" | "retained" {
    const result = this.#owner.writer.writeFramed(raw);
    if (this.#owner.writer.blocked) this.exchange?.pause();
    return result;
  }

  #commitFlow(): boolean {
    if (this.#owner.writer.committed) return true;
    const head = this.#head;
    if (head === null) return false;
    if (this.#owner.commit(this, head, lengthToTell(head))) return true;
    this.#mode = "over";
    return false;
  }

  #endWhole(head: UpstreamHead, trailers: readonly string[]): void {
    const body = this.#held.length === 1 ? (this.#held[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#held);
    this.#mode = "over";
    if (this.#isEmpty(head, body.length)) this.#owner.onFailure(this, { kind: "emptyAnswer" });
    else this.#owner.onEnd(this, { kind: "whole", head, body, isJson: this.#isJson }, trailers);
  }

  #isEmpty({ status, framing }: UpstreamHead, bytes: number): boolean {
    return bytes === 0 && status === 200 && framing !== "none" && this.#owner.mode === "engine";
  }
}

/** The length of the body that follows, or that would follow if it were not for HEAD or 304. */
function lengthToTell(head: UpstreamHead): number | undefined {
  if (head.framing === "length") return head.contentLength;
  const declared =
    head.framing === "none" && head.status !== 204 ? headerValue(head.rawHeaders, "content-length") : undefined;
  return declared !== undefined && /^\d{1,15}$/.test(declared) ? Number(declared) : undefined;
}

/** A part of a coded body can't be decoded by itself. */
const carriesWhole = (head: UpstreamHead): boolean => head.framing !== "none" && head.status !== 206;

function describeBody(rawHeaders: readonly string[]): { contentType: string; encoding: string } {
  let contentType = "";
  let encoding = "";
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? "";
    if (name.length === 12 && name.toLowerCase() === "content-type")
      contentType = (rawHeaders[i + 1] ?? "").trim().toLowerCase();
    else if (name.length === 16 && name.toLowerCase() === "content-encoding")
      encoding = `${encoding === "" ? "" : `${encoding}, `}${(rawHeaders[i + 1] ?? "").trim().toLowerCase()}`;
  }
  return { contentType, encoding };
}
