import { WebSocket } from "ws";
import {
  LINK_FRAME_BYTES_MAX,
  LINK_PATH,
  readControlFrame,
  writeFrame,
  type AgentMessage,
  type ControlMessage,
} from "../contract/agent-link.ts";
import type { NodeReport, ShardReport } from "../contract/fleet.ts";
import { aNodeReport } from "./fleet-builders.ts";
import { Watched } from "./wait-for.ts";

type Command = Extract<ControlMessage, { type: "command" }>;

/**
 * An agent's side of the link without a node behind it, for tests of control planes and for fleets of hundreds: it obeys whoever
 * says to lead with the highest epoch, pretends to run what it is told to, and keeps a ledger.
 */
export class FakeAgent {
  readonly name: string;
  readonly heard: ControlMessage[] = [];
  readonly commands: Command[] = [];
  nodeId: string | null = null;
  bootId = "boot-1";
  credential: string;
  shards: ShardReport[] = [];
  part: Partial<NodeReport> = {};
  highestEpoch: NodeReport["highestEpoch"] = null;
  epochProof = "";
  /** Whether what it is told to start runs at once. */
  obeys = true;
  answersPings = true;
  refusedWith: number | null = null;
  closedWith: number | null = null;
  #socket: WebSocket | null = null;
  #seq = 0;
  readonly #state = new Watched();

  constructor(name: string, credential: string) {
    this.name = name;
    this.credential = credential;
  }

  get isOpen(): boolean {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  connect(url: string): void {
    const socket = new WebSocket(`${url.replace(/^http/, "ws")}${LINK_PATH}`, {
      headers: { authorization: `Bearer ${this.credential}` },
      maxPayload: LINK_FRAME_BYTES_MAX,
      perMessageDeflate: false,
    });
    this.#socket = socket;
    this.refusedWith = null;
    this.closedWith = null;
    socket.on("open", () => {
      const { name: nodeName, nodeId, bootId } = this;
      this.say({ type: "hello", nodeName, nodeId, bootId, agentVersion: "test" });
    });
    socket.on("unexpected-response", (request, response) => {
      this.refusedWith = response.statusCode ?? 0;
      response.resume();
      request.destroy();
      this.#state.changed();
    });
    socket.on("error", () => {});
    socket.on("close", (code) => {
      this.closedWith = code;
      this.#state.changed();
    });
    socket.on("message", (data) => this.#take((data as Buffer).toString("utf8")));
  }

  say(message: AgentMessage): void {
    if (this.isOpen) this.#socket?.send(writeFrame(message));
  }

  sayRaw(frame: string | Buffer): void {
    this.#socket?.send(frame);
  }

  report(part: Partial<NodeReport> = {}): void {
    this.#seq += 1;
    const { nodeId, name, shards, highestEpoch } = this;
    const proofs = { epoch: this.epochProof, commit: "" };
    const report = aNodeReport(nodeId ?? "", { name, shards, highestEpoch, proofs, ...this.part, ...part });
    this.say({ type: "report", seq: this.#seq, report });
  }

  pause(): void {
    this.#socket?.pause();
  }

  cut(): void {
    this.#socket?.terminate();
  }

  until(what: string, condition: () => boolean, ms?: number): Promise<void> {
    return this.#state.until(what, condition, ms);
  }

  #take(text: string): void {
    const frame = readControlFrame(text);
    if (frame.kind !== "message") throw new Error(`a control plane sent: ${JSON.stringify(frame)}`);
    const { message } = frame;
    this.heard.push(message);
    switch (message.type) {
      case "ping":
        if (this.answersPings) this.say({ type: "pong", n: message.n });
        break;
      case "pong":
        break;
      case "welcome":
        this.nodeId = message.nodeId;
        if (message.credential !== null) this.credential = message.credential;
        this.report();
        break;
      case "lead": {
        const { clusterId, epoch, holder, proof } = message;
        if (epoch > (this.highestEpoch?.epoch ?? 0)) {
          this.highestEpoch = { clusterId, epoch, holder };
          this.epochProof = proof;
        }
        this.report();
        break;
      }
      case "command":
        this.commands.push(message);
        if (this.obeys) this.#carryOut(message);
    }
    this.#state.changed();
  }

  #carryOut({ commandId, verb }: Command): void {
    switch (verb.kind) {
      case "start":
        this.shards = [
          ...this.shards.filter(({ replicaId }) => replicaId !== verb.replicaId),
          {
            replicaId: verb.replicaId,
            generation: verb.generation,
            shard: verb.shard.index,
            model: verb.model.name,
            profileHash: verb.profile.hash,
            state: "ready",
            since: 0,
            port: 18_000 + this.shards.length,
            pid: 1,
            gpuUuids: verb.gpuUuids,
            gpuUsedMib: null,
            hostUsedMib: null,
            fetch: null,
            failure: null,
            blockedBy: null,
            adopted: false,
          },
        ];
        break;
      case "stop":
        this.shards = this.shards.map((shard) =>
          shard.replicaId === verb.replicaId ? { ...shard, state: "stopped", port: null, pid: null } : shard,
        );
        break;
      case "forget":
        this.shards = this.shards.filter(({ replicaId }) => replicaId !== verb.replicaId);
        break;
      case "logs":
        this.say({ type: "logs", requestId: verb.requestId, lines: [`a line of ${verb.replicaId}`] });
        break;
      case "collect":
        this.say({ type: "collected", requestId: verb.requestId, results: [] });
    }
    this.say({ type: "result", commandId, outcome: "done", code: null, why: null });
    this.report();
  }
}
