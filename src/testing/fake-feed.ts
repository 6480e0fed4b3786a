import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { WebSocketServer, type WebSocket } from "ws";
import {
  FEED_PATH,
  readGatewayFrame,
  writeFeedFrame,
  type FeedEndpoint,
  type FeedMark,
  type FeedMessage,
  type FeedModel,
  type GatewayMessage,
  type GatewayReport,
} from "../contract/feed.ts";
import { Watched } from "./wait-for.ts";

export const FEED_TOKEN = "CANARY-feed-token-0123456789abcdef";

export const aFeedModel = (name: string, over: Partial<FeedModel> = {}): FeedModel => ({
  name,
  aliases: [],
  engine: "vllm",
  slotsPerReplica: 4,
  startable: true,
  why: null,
  settled: "ready",
  failedStarts: 0,
  ...over,
});

export const aFeedEndpoint = (replicaId: string, url: string, over: Partial<FeedEndpoint> = {}): FeedEndpoint => ({
  replicaId,
  generation: 1,
  model: "m",
  url,
  engine: "vllm",
  engineKey: "CANARY-engine-key-0123456789abcdef",
  slots: 4,
  gpus: [],
  node: "node-a",
  draining: false,
  ...over,
});

export const aMark = (over: Partial<FeedMark> = {}): FeedMark => ({
  clusterId: "cluster",
  epoch: 1,
  holder: "holder-1",
  version: 1,
  ...over,
});

export interface FakeFeedOptions {
  readonly mark?: Partial<FeedMark>;
  readonly models?: readonly FeedModel[];
  readonly endpoints?: readonly FeedEndpoint[];
  readonly reportMs?: number;
  /** `mute`: takes connections and says nothing. */
  readonly mode?: "leads" | "standby" | "mute";
}

/** A control plane for tests of gateways: it tells what the test says, right or wrong, and keeps all that it heard. */
export class FakeFeed implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new WebSocketServer({ noServer: true });
  readonly #live = new Set<WebSocket>();
  readonly #state = new Watched();
  readonly #reportMs: number;
  readonly url: string;
  mode: NonNullable<FakeFeedOptions["mode"]>;
  mark: FeedMark;
  models: readonly FeedModel[];
  endpoints: readonly FeedEndpoint[];
  readonly heard: GatewayMessage[] = [];
  /** Credentials that were shown, refused ones too. */
  readonly shown: string[] = [];

  private constructor(server: Server, options: FakeFeedOptions) {
    this.#server = server;
    this.url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
    this.mark = aMark(options.mark);
    this.models = options.models ?? [];
    this.endpoints = options.endpoints ?? [];
    this.mode = options.mode ?? "leads";
    this.#reportMs = options.reportMs ?? 200;
    server.on("upgrade", (request, socket, head) => {
      const bearer = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? "";
      this.shown.push(bearer);
      this.#state.changed();
      if (bearer !== FEED_TOKEN || request.url !== FEED_PATH)
        socket.end("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
      else this.#sockets.handleUpgrade(request, socket, head, (client) => this.#take(client));
    });
  }

  static async start(options: FakeFeedOptions = {}): Promise<FakeFeed> {
    const server = createServer();
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(0, "127.0.0.1", resolve);
    });
    return new FakeFeed(server, options);
  }

  get open(): number {
    return this.#live.size;
  }
  /** The newest. */
  get report(): GatewayReport | undefined {
    const found = this.heard.findLast(({ type }) => type === "report");
    return found?.type === "report" ? found : undefined;
  }

  #take(client: WebSocket): void {
    this.#live.add(client);
    client.on("error", () => {});
    client.on("close", () => {
      this.#live.delete(client);
      this.#state.changed();
    });
    client.on("message", (data) => {
      const frame = readGatewayFrame((data as Buffer).toString("utf8"));
      if (frame.kind !== "message") throw new Error(`a gateway sent: ${JSON.stringify(frame)}`);
      const { message } = frame;
      this.heard.push(message);
      if (message.type === "hello") this.#greet(client, message.have);
      if (message.type === "resync") client.send(writeFeedFrame(this.whole()));
      if (message.type === "ping") client.send(writeFeedFrame({ type: "pong", n: message.n }));
      this.#state.changed();
    });
    this.#state.changed();
  }

  #greet(client: WebSocket, have: FeedMark | null): void {
    if (this.mode === "mute") return;
    const { clusterId } = this.mark;
    const say = (message: FeedMessage): void => client.send(writeFeedFrame(message));
    say({ type: "welcome", clusterId, controlId: this.url, reportMs: this.#reportMs });
    if (this.mode === "standby") say({ type: "standby" });
    else if (JSON.stringify(have) !== JSON.stringify(this.mark)) say(this.whole());
  }

  whole(): Extract<FeedMessage, { type: "state" }> {
    return { type: "state", mark: this.mark, models: [...this.models], endpoints: [...this.endpoints] };
  }

  /** To every connection, as it is. */
  say(message: FeedMessage): void {
    this.sayRaw(writeFeedFrame(message));
  }

  sayRaw(frame: string | Buffer): void {
    for (const client of this.#live) client.send(frame);
  }

  /** The next version, told as a whole. */
  tell(models: readonly FeedModel[], endpoints: readonly FeedEndpoint[]): void {
    this.models = models;
    this.endpoints = endpoints;
    this.mark = { ...this.mark, version: this.mark.version + 1 };
    this.say(this.whole());
  }

  until(what: string, condition: () => boolean, ms?: number): Promise<void> {
    return this.#state.until(what, condition, ms);
  }

  /** A report that was sent after now, and is accepted. */
  async nextReport(accept: (report: GatewayReport) => boolean = () => true, ms?: number): Promise<GatewayReport> {
    const from = this.heard.length;
    const found = (): GatewayReport | undefined => {
      const report = this.heard.slice(from).find((message) => message.type === "report" && accept(message));
      return report?.type === "report" ? report : undefined;
    };
    await this.until("a report", () => found() !== undefined, ms);
    return found() as GatewayReport;
  }

  /** Breaks every connection off, as when the process is killed. */
  cut(): void {
    for (const client of this.#live) client.terminate();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}
