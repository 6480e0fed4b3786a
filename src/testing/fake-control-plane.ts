import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer, type WebSocket } from "ws";
import {
  LINK_PATH,
  readAgentFrame,
  writeFrame,
  type AgentMessage,
  type ControlMessage,
  type Lead,
  type Verb,
} from "../contract/agent-link.ts";
import type { NodeReport, ShardReport } from "../contract/fleet.ts";
import { Watched } from "./wait-for.ts";

/**
 * A control plane for tests of agents: it speaks the link, does what the test tells it, right or wrong, and keeps a ledger of
 * all that it heard.
 */
export interface FakeControlOptions {
  readonly clusterId?: string;
  /** Tokens that may be used once. */
  readonly tokens?: readonly string[];
  /** Credentials of nodes that are enrolled already, by credential. */
  readonly credentials?: Map<string, string>;
  readonly heartbeatMs?: number;
  readonly controls?: readonly string[];
  readonly tls?: { readonly key: string; readonly cert: string };
}

export interface Heard {
  readonly connection: number;
  readonly message: AgentMessage;
}

type Result = Extract<AgentMessage, { type: "result" }>;

export class FakeControlPlane implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new WebSocketServer({ noServer: true });
  readonly #options: FakeControlOptions;
  readonly #unused: Set<string>;
  readonly #live = new Map<number, WebSocket>();
  readonly #state = new Watched();
  /** By credential, the node's id; may be shared by the control planes of one cluster. */
  readonly credentials: Map<string, string>;
  readonly heard: Heard[] = [];
  /** What was shown at each try to connect. */
  readonly shown: string[] = [];
  readonly refusals: number[] = [];
  /** Whether pings are answered. */
  answersPings = true;
  #connections = 0;
  #seq = 0;
  #commands = 0;

  private constructor(server: Server, options: FakeControlOptions) {
    this.#server = server;
    this.#options = options;
    this.#unused = new Set(options.tokens);
    this.credentials = options.credentials ?? new Map<string, string>();
    server.on("upgrade", (request, socket, head) => this.#upgrade(request, socket, head));
  }

  static async start(options: FakeControlOptions = {}, port = 0): Promise<FakeControlPlane> {
    const server = options.tls === undefined ? createServer() : createTlsServer(options.tls);
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, "127.0.0.1", resolve);
    });
    return new FakeControlPlane(server, options);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }
  get url(): string {
    return `${this.#options.tls === undefined ? "ws" : "wss"}://127.0.0.1:${this.port}`;
  }
  /** Connections that are open now. */
  get open(): number {
    return this.#live.size;
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const bearer = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? "";
    this.shown.push(bearer);
    const known = this.credentials.has(bearer) || this.#unused.has(bearer);
    if (!known || request.url !== LINK_PATH) {
      this.refusals.push(known ? 404 : 401);
      socket.end(`HTTP/1.1 ${known ? "404 Not Found" : "401 Unauthorized"}\r\ncontent-length: 0\r\n\r\n`);
      this.#state.changed();
      return;
    }
    this.#sockets.handleUpgrade(request, socket, head, (client) => this.#take(client, bearer));
  }

  #take(client: WebSocket, bearer: string): void {
    const connection = (this.#connections += 1);
    this.#live.set(connection, client);
    client.on("error", () => {});
    client.on("close", () => {
      this.#live.delete(connection);
      this.#state.changed();
    });
    client.on("message", (data) => {
      const frame = readAgentFrame((data as Buffer).toString("utf8"));
      if (frame.kind !== "message") throw new Error(`an agent sent: ${JSON.stringify(frame)}`);
      const { message } = frame;
      this.heard.push({ connection, message });
      if (message.type === "hello") client.send(writeFrame(this.#welcome(bearer, message.nodeName)));
      if (message.type === "ping" && this.answersPings) client.send(writeFrame({ type: "pong", n: message.n }));
      this.#state.changed();
    });
    this.#state.changed();
  }

  #welcome(bearer: string, nodeName: string): ControlMessage {
    const enrolling = this.#unused.delete(bearer);
    const credential = enrolling ? `credential-${randomBytes(16).toString("hex")}` : null;
    if (credential !== null) this.credentials.set(credential, `node-${nodeName}`);
    return {
      type: "welcome",
      clusterId: this.#options.clusterId ?? "cluster",
      controlId: `control-${this.port}`,
      nodeId: this.credentials.get(credential ?? bearer) ?? "",
      credential,
      heartbeatMs: this.#options.heartbeatMs ?? 200,
      controls: [...(this.#options.controls ?? [])],
    };
  }

  /** To every connection. */
  say(message: ControlMessage): void {
    for (const client of this.#live.values()) client.send(writeFrame(message));
  }

  sayRaw(frame: string | Buffer): void {
    for (const client of this.#live.values()) client.send(frame);
  }

  lead(over: Partial<Lead> = {}): Lead {
    const lead = { clusterId: this.#options.clusterId ?? "cluster", epoch: 1, holder: "holder-1", ...over };
    this.say({ type: "lead", ...lead, proof: `proof of ${lead.epoch}` });
    return lead;
  }

  /** Sends a command; resolves with its result. */
  async command(
    verb: Verb,
    over: Partial<Omit<Extract<ControlMessage, { type: "command" }>, "type" | "verb">> = {},
  ): Promise<Result> {
    this.#seq = over.seq ?? this.#seq + 1;
    this.#commands += 1;
    const command: ControlMessage = {
      type: "command",
      clusterId: this.#options.clusterId ?? "cluster",
      epoch: 1,
      holder: "holder-1",
      seq: this.#seq,
      commit: 0,
      commitProof: "",
      commandId: `command-${this.#commands}`,
      validForMs: 60_000,
      ...over,
      verb,
    };
    const from = this.heard.length;
    this.say(command);
    const isResult = ({ message }: Heard): boolean =>
      message.type === "result" && message.commandId === command.commandId;
    await this.until(`the result of ${verb.kind}`, () => this.heard.slice(from).some(isResult));
    return this.heard.slice(from).find(isResult)?.message as Result;
  }

  until(what: string, condition: () => boolean, ms?: number): Promise<void> {
    return this.#state.until(what, condition, ms);
  }

  /** The newest report. */
  get report(): NodeReport | undefined {
    const message = this.heard.findLast((heard) => heard.message.type === "report")?.message;
    return message?.type === "report" ? message.report : undefined;
  }

  shard(replicaId: string): ShardReport | undefined {
    return this.report?.shards.find((shard) => shard.replicaId === replicaId);
  }

  /** Waits for a report of the replica that is accepted. */
  async untilShard(
    replicaId: string,
    what: string,
    accept: (shard: ShardReport) => boolean,
    ms?: number,
  ): Promise<ShardReport> {
    const found = (): ShardReport | undefined => {
      const shard = this.shard(replicaId);
      return shard !== undefined && accept(shard) ? shard : undefined;
    };
    try {
      await this.until(`${replicaId} ${what}`, () => found() !== undefined, ms);
    } catch (error) {
      throw new Error(`last seen: ${JSON.stringify(this.shard(replicaId))}`, { cause: error });
    }
    return found() as ShardReport;
  }

  untilState(replicaId: string, state: ShardReport["state"], ms?: number): Promise<ShardReport> {
    return this.untilShard(replicaId, `is ${state}`, (shard) => shard.state === state, ms);
  }

  /** A report that was sent after now. */
  async nextReport(): Promise<NodeReport> {
    const from = this.heard.length;
    await this.until("a report", () => this.heard.slice(from).some(({ message }) => message.type === "report"));
    return this.report as NodeReport;
  }

  /** Breaks every connection off, as when the process is killed. */
  cut(): void {
    for (const client of this.#live.values()) client.terminate();
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
