import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { WebSocketServer, type WebSocket } from "ws";
import { systemClock, type Clock } from "../../kernel/clock.ts";
import { ComfyLine, type ComfyLedger, type ComfyPrompt } from "./comfy-line.ts";
import { ComfyScript, type ComfyAction, type ComfyRule } from "./comfy-script.ts";

export interface FakeComfyOptions {
  readonly clock?: Clock;
  readonly port?: number;
  /** An older build: it gives prompts ids of its own, and an interruption stops whatever runs. */
  readonly old?: boolean;
  /** Has no socket, as behind a proxy that passes none. */
  readonly socketless?: boolean;
  /** Before all its paths. */
  readonly prefix?: string;
}

/** A ComfyUI with the real one's wire format, and each way in which it goes wrong, on request. */
export interface FakeComfy extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  script(rule: ComfyRule): void;
  clearScript(): void;
  ledger(): ComfyLedger;
  until(what: string, met: (ledger: ComfyLedger) => boolean): Promise<void>;
  /** Somebody else's prompt, which no gateway submitted. */
  addForeign(action?: ComfyAction): string;
  tellStep(value: number, max: number): void;
  finish(state?: "success" | "error"): void;
  /** In bytes, of the one card. */
  setVram(total: number, free: number): void;
  /** Every client that hears of its prompts hears no more. Returns how many there were. */
  breakSockets(): number;
  /** Everything that waits, runs or has ended is gone. */
  restart(): void;
  close(): Promise<void>;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

export async function startFakeComfy(options: FakeComfyOptions = {}): Promise<FakeComfy> {
  const comfy = new Comfy(options);
  const sockets = new Set<Socket>();
  const server = createServer((req, res) => void comfy.serve(req, res));
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => {}); // A reset by the other side; its close follows.
  });
  server.on("upgrade", (req, socket, head) => comfy.upgrade(req, socket as Socket, head));
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, "127.0.0.1", resolve);
  });
  const { port } = server.address() as AddressInfo;
  const close = async (): Promise<void> => {
    comfy.line.stop();
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  return {
    url: `http://127.0.0.1:${port}${options.prefix ?? ""}`,
    port,
    script: (rule) => comfy.rules.add(rule),
    clearScript: () => comfy.rules.clear(),
    ledger: () => comfy.line.ledger(),
    until: (what, met) => comfy.line.until(what, met),
    addForeign: (action = { end: "never" }) => comfy.addForeign(action),
    tellStep: (value, max) => comfy.line.tellStep(value, max),
    finish: (state) => comfy.line.finish(state),
    setVram: (total, free) => {
      comfy.vram = { total, free };
    },
    breakSockets: () => comfy.breakSockets(),
    restart: () => comfy.line.loseAll(),
    close,
    [Symbol.asyncDispose]: close,
  };
}

class Comfy {
  readonly rules = new ComfyScript();
  readonly line: ComfyLine;
  vram = { total: 48 * 1024 ** 3, free: 40 * 1024 ** 3 };
  readonly #options: FakeComfyOptions;
  readonly #sockets = new WebSocketServer({ noServer: true });
  readonly #clients = new Map<string, WebSocket>();

  constructor(options: FakeComfyOptions) {
    this.#options = options;
    this.line = new ComfyLine(options.clock ?? systemClock, (clientId, type, data) => {
      this.#clients.get(clientId ?? "")?.send(JSON.stringify({ type, data }));
    });
  }

  addForeign(action: ComfyAction): string {
    const graph = { "1": { class_type: "SaveImage", inputs: {} } };
    return this.line.add({ id: randomUUID(), clientId: "somebody", body: "", graph, action }, false).id;
  }

  upgrade(req: IncomingMessage, socket: Socket, head: Buffer): void {
    const url = new URL(req.url ?? "/", "http://comfy");
    const clientId = url.searchParams.get("clientId") ?? randomUUID();
    if (url.pathname !== `${this.#options.prefix ?? ""}/ws` || this.#options.socketless === true)
      return void socket.destroy();
    this.#sockets.handleUpgrade(req, socket, head, (client) => {
      // A second one of the same client takes the first one's place.
      this.#clients.set(clientId, client);
      client.on("error", () => {}); // Its close follows.
      client.send(JSON.stringify({ type: "status", data: { status: { exec_info: this.#info() }, sid: clientId } }));
      client.send(Buffer.from([0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xd8])); // The begin of a preview.
    });
  }

  breakSockets(): number {
    const clients = [...this.#clients.values()].filter(({ readyState, OPEN }) => readyState === OPEN);
    for (const client of clients) client.terminate();
    return clients.length;
  }

  async serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const url = new URL(req.url ?? "/", "http://comfy");
    const body = await readAll(req);
    const { prefix = "" } = this.#options;
    if (!url.pathname.startsWith(`${prefix}/`)) return send(res, 404, {});
    const path = url.pathname.slice(prefix.length);
    if (req.method === "POST") return this.#post(path, body, res);
    if (path === "/prompt") return send(res, 200, { exec_info: this.#info() });
    if (path === "/queue") return send(res, 200, this.#queue());
    if (path === "/system_stats") return send(res, 200, this.#stats());
    if (path === "/view") return this.#view(url, res);
    const id = /^\/history\/([^/]+)$/.exec(path)?.[1];
    return id === undefined ? send(res, 404, {}) : this.#history(id, res);
  }

  #post(path: string, body: string, res: ServerResponse): void {
    if (path === "/prompt") return this.#submit(body, res);
    const asked = parsed(body);
    if (path === "/queue") {
      if (Array.isArray(asked["delete"])) this.line.delete(asked["delete"]);
      return send(res, 200, {});
    }
    if (path !== "/interrupt") return send(res, 404, {});
    const id = asked["prompt_id"];
    this.line.interrupt(typeof id === "string" ? id : null, this.#options.old === true);
    return send(res, 200, {});
  }

  #submit(body: string, res: ServerResponse): void {
    this.line.countSubmit();
    const asked = parsed(body);
    const graph = asked["prompt"];
    const refuse = (type: string): void =>
      send(res, 400, { error: { type, message: `refused: ${type}`, details: "", extra_info: {} }, node_errors: {} });
    if (typeof graph !== "object" || graph === null) return refuse("no_prompt");
    const action = this.rules.actionFor(JSON.stringify(graph));
    const asksFor = asked["prompt_id"];
    const old = this.#options.old === true;
    if (!old && asksFor !== undefined && (typeof asksFor !== "string" || !UUID.test(asksFor)))
      return refuse("invalid_prompt_id");
    if (action.submit === "resetBefore") return reset(res);
    if (action.submit === "invalid") return refuse("prompt_outputs_failed_validation");
    if (action.submit === "unavailable") return send(res, 503, {});
    const id = typeof asksFor === "string" && !old ? asksFor : randomUUID();
    const clientId = typeof asked["client_id"] === "string" ? asked["client_id"] : null;
    const prompt = this.line.add(
      { id, clientId, body, graph: graph as ComfyPrompt["graph"], action },
      asked["front"] === true,
    );
    if (action.submit === "resetAfter") return reset(res);
    return send(res, 200, { prompt_id: id, number: prompt.number, node_errors: {} });
  }

  #info(): { queue_remaining: number } {
    return { queue_remaining: this.line.pending.length + (this.line.running === undefined ? 0 : 1) };
  }

  #queue(): unknown {
    const item = ({ number, id, graph, clientId }: ComfyPrompt): unknown => [
      number,
      id,
      graph,
      { client_id: clientId, create_time: 1 },
      ["1"],
    ];
    const { running, pending } = this.line;
    // As a heap is: in no order.
    return {
      queue_running: running === undefined ? [] : [item(running)],
      queue_pending: pending.toReversed().map(item),
    };
  }

  #history(id: string, res: ServerResponse): void {
    this.line.look(id);
    const known = this.line.find(id);
    const { history, spoiltLooks = Number.POSITIVE_INFINITY } = known?.action ?? {};
    if (known !== undefined && history !== undefined && known.looks <= spoiltLooks) {
      if (history === "reset") return reset(res);
      if (history === "pruned") return send(res, 200, {});
      return history === "serverError" ? send(res, 500, {}) : sendText(res, "<html>");
    }
    const prompt = this.line.ended(id);
    return send(res, 200, prompt === undefined ? {} : { [id]: entryOf(prompt) });
  }

  #view(url: URL, res: ServerResponse): void {
    const filename = url.searchParams.get("filename") ?? "";
    const prompt = this.line.find(filename.slice(0, 36));
    if (prompt === undefined || prompt.action.view === "missing") return send(res, 404, {});
    if (prompt.action.view === "reset") return reset(res);
    if (prompt.action.view === "serverError") return send(res, 500, {});
    const bytes = fileOf(filename, prompt.action.fileBytes);
    res.writeHead(200, { "content-type": "video/mp4", "content-length": bytes.length }).end(bytes);
  }

  #stats(): unknown {
    const { total, free } = this.vram;
    const device = {
      name: "cuda:0 NVIDIA : cudaMallocAsync",
      type: "cuda",
      index: 0,
      vram_total: total,
      vram_free: free,
    };
    return {
      system: { os: "posix", ram_total: 1, ram_free: 1, comfyui_version: "0.3.60", argv: ["main.py"] },
      devices: [{ ...device, torch_vram_total: 0, torch_vram_free: 0 }],
    };
  }
}

/** Bytes that tell whose they are. */
export const fileOf = (filename: string, bytes = 64): Buffer => Buffer.alloc(bytes, `made for ${filename} `);

function entryOf({ id, number, graph, clientId, action, state }: ComfyPrompt): unknown {
  const fault = {
    prompt_id: id,
    node_id: "1",
    node_type: "KSampler",
    exception_type: action.end === "outOfMemory" ? "torch.OutOfMemoryError" : "RuntimeError",
    exception_message: action.end === "outOfMemory" ? "CUDA out of memory." : "the latent has the wrong shape",
  };
  const message = state === "interrupted" ? ["execution_interrupted", { prompt_id: id }] : ["execution_error", fault];
  const messages = [["execution_start", { prompt_id: id }], ...(state === "success" ? [] : [message])];
  return {
    prompt: [number, id, graph, { client_id: clientId }, ["1"]],
    outputs: state === "success" ? outputsOf(id, action) : {},
    status: { status_str: state === "success" ? "success" : "error", completed: state === "success", messages },
    meta: {},
  };
}

function outputsOf(id: string, { end, files = 1, previews = 0 }: ComfyAction): Record<string, unknown> {
  if (end === "nothing") return {};
  if (end === "text") return { "3": { text: ["a sentence"] } };
  const listed = (count: number, type: string): unknown[] =>
    Array.from({ length: count }, (_none, i) => ({ filename: `${id}_${type}_${i}.mp4`, subfolder: "made", type }));
  return {
    "2": { images: listed(previews, "temp"), animated: [true] },
    "9": { gifs: listed(files, "output") },
  };
}

function parsed(body: string): Record<string, unknown> {
  try {
    return JSON.parse(body) as Record<string, unknown>;
  } catch {
    return {};
  }
}

async function readAll(req: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of req) parts.push(part as Buffer);
  return Buffer.concat(parts).toString("utf8");
}

const reset = (res: ServerResponse): void => void res.socket?.resetAndDestroy();

function send(res: ServerResponse, status: number, body: unknown): void {
  const text = JSON.stringify(body);
  res.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) }).end(text);
}

const sendText = (res: ServerResponse, text: string): void =>
  void res.writeHead(200, { "content-type": "text/html", "content-length": Buffer.byteLength(text) }).end(text);
