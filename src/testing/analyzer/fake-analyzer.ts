import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { systemClock, type Clock } from "../../kernel/clock.ts";
import { AnalyzerOperations, type AnalyzerLedger } from "./analyzer-operations.ts";
import { AnalyzerScript, type AnalyzerAction, type AnalyzerRule } from "./analyzer-script.ts";

export interface FakeAnalyzerOptions {
  readonly clock?: Clock;
  /** How long an analysis takes unless a rule says otherwise; default none. */
  readonly analyzeMs?: number;
  /** How long an operation is known after its submission; default 24 h. */
  readonly retentionMs?: number;
  readonly models?: readonly string[];
  /** Whether DELETE exists, as in v4.0; default by the path family. */
  readonly deletes?: boolean;
  /** The `Ocp-Apim-Subscription-Key` that it asks for; absent: none, as containers do. */
  readonly key?: string;
  readonly port?: number;
}

/**
 * A Document Intelligence container as the gateway sees one: submit, look, fetch and delete under both path families, in
 * the service's own words, and each way in which it goes wrong, on request. `GET /fake/ledger` is its own account,
 * `POST /fake/script` takes a rule, `DELETE /fake/script` removes them all.
 */
export interface FakeAnalyzer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  script(rule: AnalyzerRule): void;
  clearScript(): void;
  ledger(): AnalyzerLedger;
  until(what: string, met: (ledger: AnalyzerLedger) => boolean): Promise<void>;
  /** Everything that it was at work on is gone. */
  restart(): void;
  close(): Promise<void>;
}

const API_VERSIONS: Readonly<Record<string, readonly string[]>> = {
  documentintelligence: ["2024-11-30"],
  formrecognizer: ["2023-07-31", "2022-08-31"],
};
const ANALYZE = /^\/(documentintelligence|formrecognizer)\/documentModels\/([^/:]+):analyze$/;
const RESULT = /^\/(documentintelligence|formrecognizer)\/documentModels\/([^/:]+)\/analyzeResults\/([^/]+)$/;
const MEDIA_TYPES =
  /^(?:application\/(?:json|octet-stream|pdf|vnd\.openxmlformats-officedocument\.[a-z.]+)|image\/(?:jpeg|png|tiff|bmp|heif)|text\/html)(?:;|$)/;
const BODY_BYTES_MAX = 256 * 1024 * 1024;

type Family = "documentintelligence" | "formrecognizer";
interface Place {
  readonly family: Family;
  readonly model: string;
  readonly query: string;
  readonly apiVersion: string;
}

export async function startFakeAnalyzer(options: FakeAnalyzerOptions = {}): Promise<FakeAnalyzer> {
  const analyzer = new Analyzer(options);
  const sockets = new Set<Socket>();
  const server = createServer((req, res) => void analyzer.serve(req, res));
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
    script: (rule) => analyzer.rules.add(rule),
    clearScript: () => analyzer.rules.clear(),
    ledger: () => analyzer.operations.ledger(),
    until: (what, met) => analyzer.operations.until(what, met),
    restart: () => analyzer.operations.forgetAll(),
    close,
    [Symbol.asyncDispose]: close,
  };
}

interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly inner: string | undefined;
}
const fault = (status: number, code: string, message: string, inner?: string): Refusal => ({
  status,
  code,
  message,
  inner,
});

class Analyzer {
  readonly rules = new AnalyzerScript();
  readonly operations: AnalyzerOperations;
  readonly #options: FakeAnalyzerOptions;
  readonly #clock: Clock;

  constructor(options: FakeAnalyzerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.operations = new AnalyzerOperations(this.#clock, {
      retentionMs: options.retentionMs ?? 24 * 3_600_000,
      analyzeMs: options.analyzeMs ?? 0,
    });
  }

  async serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const url = new URL(req.url ?? "/", "http://analyzer");
    const body = await readAll(req);
    if (body === undefined) return;
    if (url.pathname.startsWith("/fake/")) return this.#serveAdmin(req, res, url.pathname, body);
    if (url.pathname === "/ready" || url.pathname === "/status") return sendJson(res, 200, { status: "ready" });
    const key = this.#options.key;
    if (key !== undefined && req.headers["ocp-apim-subscription-key"] !== key)
      return sendFault(res, 401, "401", "Access denied due to invalid subscription key or wrong API endpoint.");
    const analyze = ANALYZE.exec(url.pathname);
    const result = RESULT.exec(url.pathname);
    const [, family = "", model = "", id = ""] = analyze ?? result ?? [];
    const apiVersion = url.searchParams.get("api-version") ?? "";
    if (API_VERSIONS[family]?.includes(apiVersion) !== true) return sendFault(res, 404, "404", "Resource not found");
    const place: Place = { family: family as Family, model, query: url.search, apiVersion };
    if (analyze !== null && req.method === "POST") return this.#submit(req, res, place, body);
    if (result !== null && req.method === "GET") return this.#look(req, res, place, id);
    if (result !== null && req.method === "DELETE" && (this.#options.deletes ?? family === "documentintelligence"))
      return this.operations.remove(model, id) ? void res.writeHead(204).end() : sendNoOperation(res);
    return sendFault(res, 405, "405", "Method not allowed");
  }

  async #submit(req: IncomingMessage, res: ServerResponse, place: Place, body: Buffer): Promise<void> {
    this.operations.countSubmit();
    const action = this.rules.actionFor(place.model, body);
    if (action.submitDelayMs !== undefined) await this.#clock.sleep(action.submitDelayMs, new AbortController().signal);
    if (action.submitReset === "before") {
      this.operations.countRefusal();
      return reset(res);
    }
    const contentType = req.headers["content-type"] ?? "";
    const refusal = this.#refusalOf(action, place.model, contentType, body);
    if (refusal !== undefined) {
      this.operations.countRefusal();
      return sendFault(res, refusal.status, refusal.code, refusal.message, refusal.inner, retryAfter(action));
    }
    const operation = this.operations.takeIn({ ...place, contentType, headers: req.rawHeaders, body }, action);
    if (action.submitReset === "after") return reset(res);
    const path = `/${place.family}/documentModels/${place.model}/analyzeResults/${operation.id}?api-version=${place.apiVersion}`;
    const location = locationHeader(action.location, req.headers.host ?? "", path);
    res.writeHead(202, { ...location, ...retryAfter(action), "content-length": "0" }).end();
  }

  #refusalOf(action: AnalyzerAction, model: string, contentType: string, body: Buffer): Refusal | undefined {
    if (action.submitStatus === 429)
      return fault(429, "429", "Requests have exceeded call rate limit. Please retry after 1 second.");
    if (action.submitStatus !== undefined)
      return fault(action.submitStatus, "InternalServerError", "An unexpected error occurred.");
    if (!(this.#options.models ?? ["prebuilt-read", "prebuilt-layout"]).includes(model))
      return fault(404, "NotFound", "Resource not found.", "ModelNotFound");
    const invalid = (inner: string): Refusal => fault(400, "InvalidRequest", "Invalid request.", inner);
    if (!MEDIA_TYPES.test(contentType)) return { ...invalid("UnsupportedMediaType"), status: 415 };
    if (body.length === 0) return invalid("InvalidContentLength");
    if (contentType.startsWith("application/json") && !hasOneSource(body)) return invalid("InvalidArgument");
    return undefined;
  }

  async #look(req: IncomingMessage, res: ServerResponse, place: Place, id: string): Promise<void> {
    const operation = this.operations.look(place.model, id);
    if (operation === undefined) return sendNoOperation(res);
    const { action } = operation;
    if (action.lookDelayMs !== undefined) await this.#clock.sleep(action.lookDelayMs, new AbortController().signal);
    if (req.socket.destroyed) return;
    if (operation.looks <= (action.spoiltLooks ?? Number.POSITIVE_INFINITY)) {
      if (action.lookReset === true) return reset(res);
      if (action.lookStatus !== undefined)
        return sendFault(res, action.lookStatus, String(action.lookStatus), "Not now.", undefined, retryAfter(action));
      if (action.lookGarbage !== undefined) return sendGarbage(res, action.lookGarbage);
    }
    const view = this.operations.view(operation);
    const under = view["status"] === "notStarted" || view["status"] === "running";
    sendJson(res, 200, view, under ? retryAfter(action) : {});
  }

  #serveAdmin(req: IncomingMessage, res: ServerResponse, path: string, body: Buffer): void {
    if (path === "/fake/ledger") return sendJson(res, 200, this.operations.ledger());
    if (path !== "/fake/script") return sendFault(res, 404, "404", "no such page of the fake");
    if (req.method === "DELETE") this.rules.clear();
    else this.rules.add(JSON.parse(body.toString("utf8")) as AnalyzerRule);
    res.writeHead(204).end();
  }
}

function readAll(req: IncomingMessage): Promise<Buffer | undefined> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let bytes = 0;
    req.on("data", (part: Buffer) => {
      bytes += part.length;
      if (bytes <= BODY_BYTES_MAX) parts.push(part);
    });
    req.on("end", () => resolve(Buffer.concat(parts)));
    req.on("close", () => resolve(undefined));
    req.on("error", () => resolve(undefined));
  });
}

function hasOneSource(body: Buffer): boolean {
  try {
    const { urlSource, base64Source } = JSON.parse(body.toString("utf8")) as Record<string, unknown>;
    return (typeof urlSource === "string") !== (typeof base64Source === "string");
  } catch {
    return false;
  }
}

const retryAfter = (action: AnalyzerAction): Record<string, string> =>
  action.retryAfterS === null ? {} : { "retry-after": String(action.retryAfterS ?? 1) };

function locationHeader(how: AnalyzerAction["location"], host: string, path: string): Record<string, string> {
  switch (how) {
    case "absent":
      return {};
    case "relative":
      return { "operation-location": path };
    case "elsewhere":
      return { "operation-location": `http://elsewhere.invalid:9${path}` };
    case "unreadable":
      return { "operation-location": "http://[" };
    case "otherPath":
      return { "operation-location": `http://${host}/admin/secrets` };
    case undefined:
      return { "operation-location": `http://${host}${path}` };
  }
}

function sendGarbage(res: ServerResponse, kind: NonNullable<AnalyzerAction["lookGarbage"]>): void {
  const page = { html: "<html><body>Bad gateway</body></html>", halfJson: '{"status":"succ', list: "[1,2]", empty: "" };
  switch (kind) {
    case "unknownStatus":
      return sendJson(res, 200, { status: "levitating" });
    case "noResult":
      return sendJson(res, 200, { status: "succeeded", createdDateTime: "2026-01-01T00:00:00Z" });
    default:
      res.writeHead(200, { "content-type": kind === "html" ? "text/html" : "application/json" }).end(page[kind]);
  }
}

const reset = (res: ServerResponse): void => void res.socket?.resetAndDestroy();

function sendJson(res: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  const text = JSON.stringify(body);
  res.writeHead(status, {
    ...headers,
    "content-type": "application/json; charset=utf-8",
    "content-length": String(Buffer.byteLength(text)),
  });
  res.end(text);
}

const sendFault = (
  res: ServerResponse,
  status: number,
  code: string,
  message: string,
  inner?: string,
  headers: Record<string, string> = {},
): void =>
  sendJson(
    res,
    status,
    { error: { code, message, ...(inner === undefined ? {} : { innererror: { code: inner, message } }) } },
    headers,
  );

const sendNoOperation = (res: ServerResponse): void =>
  sendFault(res, 404, "NotFound", "Resource not found.", "OperationNotFound");
