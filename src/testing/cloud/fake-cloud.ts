import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { systemClock, type Clock } from "../../kernel/clock.ts";
import type { CloudAsk, CloudDialect, Page, RefusalKind, Told } from "./cloud-dialect.ts";
import { CloudTasks, type CloudLedger, type CloudTask } from "./cloud-ledger.ts";
import { CloudScript, type CloudAction, type CloudRule } from "./cloud-script.ts";

export interface FakeCloudOptions {
  readonly clock?: Clock;
  /** What one piece of work costs, in millionths; default 0. */
  readonly priceMicros?: number;
  readonly port?: number;
}

/**
 * A cloud that takes work for money, in the words of its dialect, and each way in which such a cloud goes wrong, on request. Its ledger is
 * what it was asked to do and what it would charge. `GET /fake/ledger` is the same over HTTP, `POST /fake/script` takes a rule.
 */
export interface FakeCloud extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  script(rule: CloudRule): void;
  clearScript(): void;
  /** For work that is taken from now on, in millionths. */
  setPrice(micros: number): void;
  ledger(): CloudLedger;
  until(what: string, met: (ledger: CloudLedger) => boolean): Promise<void>;
  close(): Promise<void>;
}

const REFUSALS: ReadonlySet<string> = new Set<RefusalKind>([
  "rateLimited",
  "unavailable",
  "serverError",
  "badRequest",
  "badKey",
  "noMoney",
  "policy",
  "errorInside",
]);
const BODY_BYTES_MAX = 64 * 1024 * 1024;

export async function startFakeCloud(dialect: CloudDialect, options: FakeCloudOptions = {}): Promise<FakeCloud> {
  const cloud = new Cloud(dialect, options.clock ?? systemClock);
  cloud.tasks.priceMicros = options.priceMicros ?? 0;
  const sockets = new Set<Socket>();
  const server = createServer((req, res) => void cloud.serve(req, res));
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => {}); // A reset by the other side; its close follows.
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, "127.0.0.1", resolve);
  });
  const { port } = server.address() as AddressInfo;
  const close = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    script: (rule) => cloud.rules.add(rule),
    clearScript: () => cloud.rules.clear(),
    setPrice: (micros) => {
      cloud.tasks.priceMicros = micros;
    },
    ledger: () => cloud.tasks.ledger(),
    until: (what, met) => cloud.tasks.until(what, met),
    close,
    [Symbol.asyncDispose]: close,
  };
}

class Cloud {
  readonly rules = new CloudScript();
  readonly tasks = new CloudTasks();
  readonly #dialect: CloudDialect;
  readonly #clock: Clock;

  constructor(dialect: CloudDialect, clock: Clock) {
    this.#dialect = dialect;
    this.#clock = clock;
  }

  async serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const url = new URL(req.url ?? "/", `http://${req.headers.host ?? "cloud"}`);
    const body = await readAll(req);
    if (body === undefined) return;
    if (url.pathname.startsWith("/fake/")) return this.#serveAdmin(req, res, url.pathname, body);
    const video = /^\/videos\/([^/]+)\.mp4$/.exec(url.pathname)?.[1];
    if (video !== undefined) return this.#serveVideo(req, res, video);
    const ask = this.#dialect.read(req.method ?? "", url, req.headers, body);
    if (ask === undefined) return send(res, { status: 404, body: { error: "no such page of the cloud" } });
    if (ask.kind === "submit") this.tasks.countSubmit();
    if (!this.#dialect.authorized(req.headers)) {
      if (ask.kind === "submit") this.tasks.countRefusal();
      return send(res, this.#dialect.refused("badKey"));
    }
    if (ask.kind === "submit") return this.#submit(ask, url, body, res);
    return this.#ask(ask, url, res);
  }

  async #submit(
    ask: Extract<CloudAsk, { kind: "submit" }>,
    url: URL,
    body: string,
    res: ServerResponse,
  ): Promise<void> {
    const action = this.rules.actionFor(body);
    if (action.submitDelayMs !== undefined) await this.#clock.sleep(action.submitDelayMs, new AbortController().signal);
    const how = action.submit;
    if (how === "resetBefore" || (how !== undefined && REFUSALS.has(how))) {
      this.tasks.countRefusal();
      return how === "resetBefore"
        ? reset(res)
        : send(res, this.#dialect.refused(how as RefusalKind), action.retryAfterS);
    }
    const { idempotencyKey } = ask;
    const task = this.tasks.takeIn({ idempotencyKey, path: url.pathname, body, action }, this.#dialect.dedupes);
    switch (how) {
      case "resetAfter":
        return reset(res);
      case "mute":
        return;
      case "garbage":
        return sendText(res, "<html>Bad gateway</html>");
      case "takenRateLimited":
        return send(res, this.#dialect.refused("rateLimited"), action.retryAfterS);
      case "noTask":
        return send(res, { status: 200, body: {} });
      default:
        return send(res, this.#dialect.accepted(this.#told(task, url)));
    }
  }

  #ask(ask: Exclude<CloudAsk, { kind: "submit" }>, url: URL, res: ServerResponse): void {
    if (ask.kind === "find") {
      const made = this.tasks.madeFor(ask.key);
      const told = made === undefined ? this.#dialect.unknownTask() : this.#dialect.accepted(this.#told(made, url));
      return send(res, { ...told, status: made === undefined ? 404 : 200 });
    }
    const task = ask.kind === "look" ? this.tasks.look(ask.id) : this.tasks.find(ask.id);
    if (task === undefined) return send(res, this.#dialect.unknownTask());
    if (ask.kind === "cancel")
      return send(res, this.tasks.cancel(task) ? { status: 200, body: {} } : { status: 409, body: {} });
    if (ask.kind === "place") return send(res, this.#dialect.placed(this.#told(task, url)));
    const { look, spoiltLooks = Number.POSITIVE_INFINITY } = task.action;
    if (look === undefined || task.looks > spoiltLooks) return send(res, this.#dialect.view(this.#told(task, url)));
    if (look === "reset") return reset(res);
    if (look === "garbage") return sendText(res, "<html>Bad gateway</html>");
    return send(res, this.#dialect.refused(look), task.action.retryAfterS);
  }

  #serveVideo(req: IncomingMessage, res: ServerResponse, id: string): void {
    const task = this.tasks.find(id);
    if (task === undefined || task.action.result === "gone") return send(res, { status: 404, body: {} });
    if (task.action.result === "reset") return reset(res);
    if (task.action.result === "serverError") return send(res, { status: 500, body: {} });
    // An address in a result is anybody's; a key that is sent there is a key that is lost.
    if (req.headers.authorization !== undefined) return send(res, { status: 400, body: { error: "a key was sent" } });
    this.tasks.handOver(task);
    const bytes = task.action.result === "empty" ? Buffer.alloc(0) : videoOf(task);
    res.writeHead(200, { "content-type": "video/mp4", "content-length": bytes.length }).end(bytes);
  }

  #told(task: CloudTask, { origin }: URL): Told {
    const { chargeTold, resultUrl } = task.action;
    return {
      task,
      state: this.tasks.stateOf(task),
      url: resultUrl ?? `${origin}/videos/${task.id}.mp4`,
      charged: chargeTold ?? task.chargedMicros / 1_000_000,
    };
  }

  #serveAdmin(req: IncomingMessage, res: ServerResponse, path: string, body: string): void {
    if (path === "/fake/ledger") return send(res, { status: 200, body: this.tasks.ledger() });
    if (path !== "/fake/script") return send(res, { status: 404, body: {} });
    if (req.method === "DELETE") this.rules.clear();
    else this.rules.add(JSON.parse(body) as CloudRule);
    res.writeHead(204).end();
  }
}

/** Bytes that tell whose they are. */
export const videoOf = ({ id, action }: Pick<CloudTask, "id"> & { readonly action: CloudAction }): Buffer =>
  Buffer.alloc(action.resultBytes ?? 64, `video of ${id} `);

function readAll(req: IncomingMessage): Promise<string | undefined> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let bytes = 0;
    req.on("data", (part: Buffer) => {
      bytes += part.length;
      if (bytes <= BODY_BYTES_MAX) parts.push(part);
    });
    req.on("end", () => resolve(Buffer.concat(parts).toString("utf8")));
    req.on("close", () => resolve(undefined));
    req.on("error", () => resolve(undefined));
  });
}

const reset = (res: ServerResponse): void => void res.socket?.resetAndDestroy();

function send(res: ServerResponse, { status, body }: Page, retryAfterS?: number): void {
  const text = JSON.stringify(body);
  const after = retryAfterS === undefined ? {} : { "retry-after": String(retryAfterS) };
  res.writeHead(status, { ...after, "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  res.end(text);
}

const sendText = (res: ServerResponse, text: string): void =>
  void res.writeHead(200, { "content-type": "text/html", "content-length": Buffer.byteLength(text) }).end(text);
