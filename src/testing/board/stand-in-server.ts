import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join, normalize } from "node:path";
import {
  BOARD_ACTIONS,
  BOARD_ROUTES,
  type BoardAction,
  type Change,
  type Snapshot,
  type Who,
} from "../../contract/board.ts";
import type { SyntheticBoard } from "./synthetic-board.ts";

const ROOT = join(import.meta.dirname, "../../..");
const DIST = join(ROOT, "dashboard/dist");
const TYPES: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript",
  css: "text/css",
  svg: "image/svg+xml",
  woff2: "font/woff2",
};
/** The policy that the control plane sends; the page is measured and looked at under the same. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const WHO: Who = {
  keyId: "root",
  role: "admin",
  signedIn: true,
  expiresAt: null,
  idleMs: null,
  may: Object.keys(BOARD_ACTIONS) as BoardAction[],
  clusterId: "c-4f1e",
  version: "0.1.0",
};

/** Serves the built board with made-up data, for what no real fleet on one machine can show: a thousand nodes, and every trouble. */
export class StandInServer implements AsyncDisposable {
  readonly board: SyntheticBoard;
  readonly #streams = new Set<ServerResponse>();
  readonly #server = createServer((req, res) => void this.#answer(req, res));
  /** What came back over a lost link said that it had taken last. */
  readonly resumedFrom: string[] = [];
  #version = 0;
  #paused = false;

  static async start(board: SyntheticBoard): Promise<StandInServer> {
    execFileSync(process.execPath, [join(ROOT, "scripts/build-board.ts"), "--if-stale"], { stdio: "inherit" });
    const made = new StandInServer(board);
    await new Promise<void>((resolve) => made.#server.listen(0, "127.0.0.1", resolve));
    return made;
  }

  private constructor(board: SyntheticBoard) {
    this.board = board;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}${BOARD_ROUTES.page}`;
  }

  /** All links are lost, and no new one is taken. */
  pause(): void {
    this.#paused = true;
    for (const stream of this.#streams) stream.destroy();
  }

  resume(): void {
    this.#paused = false;
  }

  /** One second of the fleet's time. */
  tick(): void {
    this.tell(this.board.tick());
  }

  tell(change: Change): void {
    this.#version += 1;
    for (const stream of this.#streams) stream.write(frame("change", this.#version, change));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const url = new URL(req.url ?? "/", "http://127.0.0.1");
    if (url.pathname === BOARD_ROUTES.session) return json(res, WHO);
    if (url.pathname === BOARD_ROUTES.plot) return json(res, this.board.plot(url.searchParams.get("upstream") ?? ""));
    if (url.pathname === BOARD_ROUTES.stream) return this.#paused ? void res.destroy() : this.#stream(req, res);
    if (!url.pathname.startsWith(BOARD_ROUTES.page))
      return json(res, { error: { code: "NODE_SILENT", message: "nothing stands behind this board" } }, 503);
    const path = normalize(url.pathname.slice(BOARD_ROUTES.page.length) || "index.html");
    try {
      if (path.startsWith("..")) throw new Error("outside of the folder");
      const body = await readFile(join(DIST, path));
      const type = TYPES[path.split(".").at(-1) ?? ""] ?? "application/octet-stream";
      res.writeHead(200, {
        "content-type": type,
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
      });
      res.end(body);
    } catch {
      res.writeHead(404).end();
    }
  }

  #stream(req: IncomingMessage, res: ServerResponse): void {
    const last = req.headers["last-event-id"];
    if (typeof last === "string") this.resumedFrom.push(last);
    res.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    res.write(frame("snapshot", this.#version, this.board.snapshot));
    this.#streams.add(res);
    res.once("close", () => this.#streams.delete(res));
  }
}

const frame = (event: string, id: number, body: Snapshot | Change): string =>
  `id: s.${id}\nevent: ${event}\ndata: ${JSON.stringify(body)}\n\n`;

function json(res: ServerResponse, body: unknown, status = 200): void {
  res.writeHead(status, { "content-type": "application/json" });
  res.end(JSON.stringify(body));
}
