import { randomBytes } from "node:crypto";
import { WebSocket } from "ws";
import {
  FEED_FRAME_BYTES_MAX,
  FEED_PATH,
  readFeedFrame,
  writeFeedFrame,
  type FeedEndpoint,
  type FeedMark,
  type FeedMessage,
  type FeedModel,
  type GatewayMessage,
  type GatewayReport,
} from "../contract/feed.ts";
import { systemClock } from "../kernel/clock.ts";
import { Watched } from "./wait-for.ts";

const REPORT_MS = 200;

/**
 * A gateway for tests of control planes: it dials one, follows the feed by the book, reports what the test tells it to, and keeps a
 * ledger of all that it heard.
 */
export class FakeGateway implements AsyncDisposable {
  readonly id = randomBytes(6).toString("hex");
  readonly heard: FeedMessage[] = [];
  readonly models = new Map<string, FeedModel>();
  readonly endpoints = new Map<string, FeedEndpoint>();
  mark: FeedMark | null = null;
  demand: GatewayReport["demand"] = {};
  used: GatewayReport["used"] = {};
  /** Whether it reports by itself. */
  reports = true;
  /** Of an answer in place of an upgrade. */
  refusedWith: number | null = null;
  closedWith: number | null = null;
  readonly #socket: WebSocket;
  readonly #state = new Watched();
  readonly #over = new AbortController();
  #seq = 0;

  constructor(
    url: string,
    credential: string | null,
    /** `board`: it says that it can be asked, and answers nothing. */
    options: { readonly name?: string; readonly have?: FeedMark; readonly board?: true } = {},
  ) {
    const headers = credential === null ? {} : { authorization: `Bearer ${credential}` };
    this.#socket = new WebSocket(`${url.replace(/^http/, "ws")}${FEED_PATH}`, {
      headers,
      maxPayload: FEED_FRAME_BYTES_MAX,
      perMessageDeflate: false,
    });
    this.#socket.on("open", () => {
      const { name = "gw-test", have = null, ...more } = options;
      this.say({ type: "hello", gatewayId: this.id, name, version: "test", have, ...more });
      void this.#report();
    });
    this.#socket.on("unexpected-response", (request, response) => {
      this.refusedWith = response.statusCode ?? 0;
      response.resume();
      request.destroy();
      this.#state.changed();
    });
    this.#socket.on("error", () => {});
    this.#socket.on("close", (code) => {
      this.closedWith = code;
      this.#over.abort();
      this.#state.changed();
    });
    this.#socket.on("message", (data) => this.#take((data as Buffer).toString("utf8")));
  }

  say(message: GatewayMessage): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(writeFeedFrame(message));
  }

  /** What it sends cannot be read. */
  sayRaw(text: string): void {
    this.#socket.send(text);
  }

  /** Stops reading, as a gateway that hangs does. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  reportNow(): void {
    this.#seq += 1;
    const { demand, used, mark: have } = this;
    this.say({ type: "report", seq: this.#seq, upForMs: 60_000, have, demand, used });
  }

  until(what: string, condition: () => boolean, ms?: number): Promise<void> {
    return this.#state.until(what, condition, ms);
  }

  count(type: FeedMessage["type"]): number {
    return this.heard.filter((message) => message.type === type).length;
  }

  /** Breaks off without a word. */
  cut(): void {
    this.#socket.terminate();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    if (this.#socket.readyState === WebSocket.CLOSED) return;
    const closed = new Promise<void>((resolve) => this.#socket.once("close", () => resolve()));
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.close(1000);
    else this.#socket.terminate();
    await closed;
  }

  async #report(): Promise<void> {
    const { signal } = this.#over;
    while (!signal.aborted) {
      if (this.reports) this.reportNow();
      await systemClock.sleep(REPORT_MS, signal).catch(() => {});
    }
  }

  #take(text: string): void {
    const frame = readFeedFrame(text);
    if (frame.kind !== "message") throw new Error(`a control plane sent: ${JSON.stringify(frame)}`);
    const { message } = frame;
    this.heard.push(message);
    if (message.type === "ping") this.say({ type: "pong", n: message.n });
    else if (message.type === "state") this.#lay(message, true);
    else if (message.type === "change") {
      const { mark } = this;
      const fits = mark !== null && mark.epoch === message.mark.epoch && mark.version === message.from;
      if (fits) this.#lay(message, false);
      else this.say({ type: "resync" });
    }
    this.#state.changed();
  }

  #lay(message: Extract<FeedMessage, { type: "state" | "change" }>, whole: boolean): void {
    if (whole) {
      this.models.clear();
      this.endpoints.clear();
    }
    for (const model of message.models) this.models.set(model.name, model);
    for (const endpoint of message.endpoints) this.endpoints.set(endpoint.replicaId, endpoint);
    if (message.type === "change") {
      for (const name of message.modelsGone) this.models.delete(name);
      for (const id of message.endpointsGone) this.endpoints.delete(id);
    }
    this.mark = message.mark;
  }
}
