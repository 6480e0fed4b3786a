import type { ServerResponse } from "node:http";
import { z } from "zod";
import type { TryEvent, UpstreamRow } from "../../contract/board.ts";
import { tryBody, type TryBody } from "../../contract/board-schema.ts";
import { jobView, type JobView } from "../../contract/job-view.ts";
import type { QueueAnswer, QueuesAnswer } from "../../contract/queues.ts";
import { ChatStreamReader, type ChatPiece } from "../../decide/board/read-chat-stream.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Asker, AskFor, WholeAnswer } from "../board/gateway-asks.ts";
import type { GatewayDesk } from "../board/gateway-desk.ts";
import type { GatewayPeer } from "../board/gateway-peer.ts";
import { type Answer, json } from "./answer.ts";
import type { ApiRequest } from "./api-server.ts";
import { read } from "./catalog-answers.ts";
import { readBody, readJson } from "./read-body.ts";
import type { RelayHandler } from "./routes.ts";
import { UsageAnswers } from "./usage-answers.ts";

export interface RelayPorts {
  readonly clock: Clock;
  readonly desk: GatewayDesk;
}

const BODY_LIMITS = { bytesMax: 128 * 1024, msMax: 10_000 } as const;
const TRIES_MAX = 16;
const TRY_TOKENS = 256;
const TRY_HEAD_MS = 600_000;
const TRY_BYTES_MAX = 2 * 1024 * 1024;
const LIST_MAX = 100;

const page = z.object({ data: z.array(jobView), next_cursor: z.string().nullable() });

/**
 * What belongs to gateways, asked of them in the name of the key that asks here: the gateway's own routes answer, with its own rules, and
 * put it on its own record.
 */
export class RelayAnswers {
  readonly #ports: RelayPorts;
  readonly #usage: UsageAnswers;
  #tries = 0;

  constructor(ports: RelayPorts) {
    this.#ports = ports;
    this.#usage = new UsageAnswers({
      clock: ports.clock,
      peers: () => this.#peers(),
      ask: (peer, asker, target) => this.#whole(peer, asker, { method: "GET", target }),
    });
  }

  async queues(): Promise<Answer> {
    const { desk } = this.#ports;
    if (desk.peers.length === 0) throw noGateway();
    const rows = (await desk.fresh()).toSorted((one, other) => (one.id < other.id ? -1 : 1));
    const body: QueuesAnswer = { upstreams: rows.map(queueAnswer) };
    return json(body);
  }

  async jobs({ query, ...request }: ApiRequest): Promise<Answer> {
    const wanted = query.get("gateway");
    const peers = wanted === null ? this.#peers() : [this.#peerNamed(wanted)];
    const params = new URLSearchParams(query);
    params.delete("gateway");
    const target = `/v1/jobs?${params.toString()}`;
    const [only] = peers;
    // One gateway's page is passed on as it is; its cursor leads on there.
    if (peers.length === 1 && only !== undefined) {
      const answer = await this.#whole(only, request, { method: "GET", target });
      if (answer.status !== 200) return passOn(answer);
      return json({ ...page.parse(JSON.parse(answer.text)), gateway: only.id });
    }
    const answers = await Promise.all(peers.map((peer) => this.#whole(peer, request, { method: "GET", target })));
    const refused = answers.find(({ status }) => status !== 200);
    if (refused !== undefined) return passOn(refused);
    const byId = new Map<string, JobView>();
    for (const { text } of answers) for (const job of page.parse(JSON.parse(text)).data) byId.set(job.id, job);
    const data = [...byId.values()].toSorted((one, other) => (one.created_at < other.created_at ? 1 : -1));
    return json({ data: data.slice(0, LIST_MAX), next_cursor: null, gateway: null });
  }

  /** The first gateway that knows what it is about answers. */
  async first(request: ApiRequest, target: string, peers = this.#peers()): Promise<Answer> {
    const what = await this.#what(request, target);
    let last: WholeAnswer | null = null;
    for (const peer of peers) {
      const answer = await this.#whole(peer, request, what);
      if (answer.status !== 404) return passOn(answer);
      last = answer;
    }
    if (last === null) throw noGateway();
    return passOn(last);
  }

  /** Every gateway with overflow rules does it: each may have a ledger of its own. The first refusal is told. */
  async all(request: ApiRequest, target: string): Promise<Answer> {
    const what = await this.#what(request, target);
    const peers = this.#ports.desk.peersWithOverflow();
    const [first, ...others] = await Promise.all(
      (peers.length === 0 ? this.#peers() : peers).map((peer) => this.#whole(peer, request, what)),
    );
    if (first === undefined) throw noGateway();
    return passOn([first, ...others].find(({ status }) => status >= 400) ?? first);
  }

  async usage(request: ApiRequest): Promise<Answer> {
    const found = await this.#usage.answer(request, request.query);
    if ("answer" in found) return found.answer;
    return this.first(request, `/usage?${request.query.toString()}`, [found.from]);
  }

  /** One request of a person, and how long each part of it took. */
  async try(request: ApiRequest): Promise<Answer> {
    const asked = read(tryBody, await readJson(request.req, this.#ports.clock, BODY_LIMITS));
    const [any] = this.#peers();
    const peer = asked.gateway === undefined ? any : this.#peerNamed(asked.gateway);
    if (peer === undefined) throw noGateway();
    if (this.#tries >= TRIES_MAX) throw new YardmasterError("RATE_LIMITED", `${TRIES_MAX} are being tried already`);
    return { kind: "own", write: (res) => this.#stream(res, peer, request, asked) };
  }

  #stream(res: ServerResponse, peer: GatewayPeer, asker: Asker, asked: TryBody): void {
    this.#tries += 1;
    res.writeHead(200, { "content-type": "application/x-ndjson", "cache-control": "no-store", ...NOSNIFF });
    const tell = new TryTeller(res, this.#ports.clock);
    const off = this.#ports.desk.asks.ask(peer, asker, tryRequest(asked), {
      onHead: (status, headers) => tell.head(status, headers),
      onText: (text) => tell.text(text),
      onEnd: (how) => tell.end(how),
    });
    res.once("close", () => {
      this.#tries -= 1;
      off();
    });
  }

  #peers(): readonly GatewayPeer[] {
    const { peers } = this.#ports.desk;
    if (peers.length === 0) throw noGateway();
    return peers;
  }

  #peerNamed(id: string): GatewayPeer {
    const found = this.#ports.desk.peers.find((peer) => peer.id === id || peer.name === id);
    if (found === undefined)
      throw new YardmasterError("GATEWAY_SILENT", "this gateway is not connected, or too old to be asked");
    return found;
  }

  #whole(peer: GatewayPeer, { keyId, role }: Asker, what: AskFor): Promise<WholeAnswer> {
    return this.#ports.desk.asks.askWhole(peer, { keyId, role }, what);
  }

  async #what({ req, route }: ApiRequest, target: string): Promise<AskFor> {
    const [method] = route.methods;
    if (method === "POST") return { method, target, body: await readBody(req, this.#ports.clock, BODY_LIMITS) };
    return { method: method === "DELETE" ? "DELETE" : "GET", target };
  }
}

/** The gateway's route for each of ours. */
export async function relay(answers: RelayAnswers, request: ApiRequest, handler: RelayHandler): Promise<Answer> {
  const { rest } = request;
  const id = encodeURIComponent(rest);
  switch (handler) {
    case "queues":
      return answers.queues();
    case "jobs":
      return answers.jobs(request);
    case "job":
    case "jobCancel":
      return answers.first(request, `/v1/jobs/${id}`);
    case "overflowShow":
      return answers.first(request, `/overflow/${id}`);
    case "overflowApprove":
      return answers.first(request, "/admin/overflow/approvals");
    case "overflowRevoke":
      // TIER/JOB, as the route there has it.
      return answers.first(request, `/admin/overflow/approvals/${rest.split("/").map(encodeURIComponent).join("/")}`);
    case "overflowStop":
      return answers.all(request, "/admin/overflow/stop");
    case "overflowGo":
      return answers.all(request, "/admin/overflow/go");
    case "overflowResume":
      return answers.first(request, `/admin/overflow/tiers/${id}/resume`);
    case "usage":
      return answers.usage(request);
    case "try":
      return answers.try(request);
    default:
      return assertNever(handler, "relay handler");
  }
}

const queueAnswer = (row: UpstreamRow): QueueAnswer => ({
  id: row.id,
  models: [...row.models],
  engine: row.engine,
  catalog_model: row.catalogModel,
  gateways: [...row.gateways],
  slots: row.slots,
  batch_max: row.batchMax,
  in_use: row.inUse,
  lingering: row.lingering,
  waiting: row.waiting,
  oldest_wait_ms: row.oldestWaitMs,
  queue_ms: row.queueMs,
  first_byte_ms: row.firstByteMs,
  per_second: row.perSecond,
  away: row.away,
  endpoints: row.endpoints,
  sharing: row.sharing,
});

const NOSNIFF = { "x-content-type-options": "nosniff" };

const noGateway = (): YardmasterError =>
  new YardmasterError("GATEWAY_SILENT", "no gateway is connected to this control plane that could be asked");

/** As the gateway worded it. */
const passOn = ({ status, text, headers }: WholeAnswer): Answer => ({
  kind: "text",
  status,
  text,
  type: headers["content-type"] ?? "application/json",
});

function tryRequest({ model, prompt, maxTokens = TRY_TOKENS, key }: TryBody): AskFor {
  const id = model.startsWith("upstreams/") ? model.slice("upstreams/".length) : null;
  const target = id === null ? "/v1/chat/completions" : `/upstreams/${encodeURIComponent(id)}/v1/chat/completions`;
  const body = {
    model: id ?? model,
    messages: [{ role: "user", content: prompt }],
    max_tokens: maxTokens,
    stream: true,
    stream_options: { include_usage: true },
  };
  const asked = { target, body: JSON.stringify(body), bytesMax: TRY_BYTES_MAX, headMs: TRY_HEAD_MS };
  return { method: "POST", ...asked, ...(key === undefined ? {} : { credential: key }) };
}

/** Tells a page of one answer, line by line. */
class TryTeller {
  readonly #res: ServerResponse;
  readonly #clock: Clock;
  readonly #startedAt: MonoMs;
  readonly #reader = new ChatStreamReader();
  #firstAt: MonoMs | null = null;
  #lastAt: MonoMs | null = null;
  #usage: { readonly prompt: number | null; readonly completion: number | null } = { prompt: null, completion: null };
  #finish: string | null = null;
  #hasFailed = false;

  constructor(res: ServerResponse, clock: Clock) {
    this.#res = res;
    this.#clock = clock;
    this.#startedAt = clock.mono();
  }

  head(status: number, headers: Readonly<Record<string, string>>): void {
    const queueMs = /^\d{1,9}$/.exec(headers["x-yardmaster-queue-ms"] ?? "")?.[0];
    this.#tell({
      kind: "head",
      status,
      queueMs: queueMs === undefined ? null : Number(queueMs),
      endpoint: headers["x-yardmaster-endpoint"] ?? null,
      requestId: headers["x-request-id"] ?? null,
    });
  }

  text(text: string): void {
    this.#take(this.#reader.take(text));
  }

  end(how: "whole" | "broken" | "tooLarge" | "busy" | "silent"): void {
    this.#take(this.#reader.end());
    if (how !== "whole" && !this.#hasFailed) this.#fail("GATEWAY_SILENT", WORDS[how]);
    if (!this.#hasFailed) {
      const { prompt, completion } = this.#usage;
      const ms = this.#firstAt === null || this.#lastAt === null ? 0 : this.#lastAt - this.#firstAt;
      this.#tell({
        kind: "end",
        totalMs: Math.round(this.#clock.mono() - this.#startedAt),
        promptTokens: prompt,
        completionTokens: completion,
        tokensPerSecond: completion === null || ms <= 0 ? null : Math.round((completion / ms) * 10_000) / 10,
        finish: this.#finish,
      });
    }
    this.#res.end();
  }

  #take(pieces: readonly ChatPiece[]): void {
    for (const piece of pieces) {
      if (piece.kind === "usage") this.#usage = piece;
      else if (piece.kind === "finish") this.#finish = piece.why;
      else if (piece.kind === "error") this.#fail(piece.code, piece.message);
      else this.#say(piece);
    }
  }

  #say({ kind, text }: Extract<ChatPiece, { kind: "text" | "thinking" }>): void {
    const now = this.#clock.mono();
    const first = this.#firstAt === null ? { firstByteMs: Math.round(now - this.#startedAt) } : {};
    this.#firstAt ??= now;
    this.#lastAt = now;
    this.#tell({ kind, text, ...first });
  }

  #fail(code: string, message: string): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#tell({ kind: "error", code, message });
  }

  #tell(event: TryEvent): void {
    if (!this.#res.destroyed && !this.#res.writableEnded) this.#res.write(`${JSON.stringify(event)}\n`);
  }
}

const WORDS = {
  broken: "the answer broke off",
  tooLarge: "the answer is longer than can be shown",
  busy: "the gateway is asked as much as it takes",
  silent: "the gateway did not answer, or its connection ended",
} as const;
