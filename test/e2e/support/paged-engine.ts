import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { DONE, aFinish, aToken } from "./raw-engine.ts";

/** What a page says: a body with status 200, another status, or nothing at all. */
export type Page = string | number | { readonly kind: "mute" };
export const MUTE: Page = { kind: "mute" };

export interface PagedEngineOptions {
  /** By path; read anew at each request, so a test may change it. A path that is not there is 404. */
  readonly pages: Record<string, Page | (() => Page)>;
  /** Every POST; the default answers with a small stream. */
  readonly onPost?: (req: IncomingMessage, res: ServerResponse, body: string) => void;
  readonly host?: string;
  readonly port?: number;
}

/** An engine whose pages are written by the test, with a count of its own. */
export interface PagedEngine extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  /** POSTs received. */
  readonly posts: number;
  /** GETs received, by path. */
  readonly gets: ReadonlyMap<string, number>;
  /** POSTs whose answer has not ended and whose client is there. */
  readonly open: number;
  close(): Promise<void>;
}

export function answerStream(res: ServerResponse, tokens = 1): void {
  res.writeHead(200, { "content-type": "text/event-stream" });
  for (let i = 0; i < tokens; i += 1) res.write(aToken(`t${i} `));
  res.end(aFinish() + DONE);
}

export async function startPagedEngine(options: PagedEngineOptions): Promise<PagedEngine> {
  const gets = new Map<string, number>();
  let posts = 0;
  let open = 0;
  const server = createServer((req, res) => {
    const path = (req.url ?? "/").split("?")[0] ?? "/";
    if (req.method === "POST") {
      posts += 1;
      open += 1;
      res.once("close", () => (open -= 1));
      let body = "";
      req.setEncoding("utf8").on("data", (text: string) => (body += text));
      req.on("end", () => (options.onPost ?? ((_req, out) => answerStream(out)))(req, res, body));
      return;
    }
    gets.set(path, (gets.get(path) ?? 0) + 1);
    const entry = options.pages[path] ?? 404;
    const page = typeof entry === "function" ? entry() : entry;
    if (typeof page === "object") return;
    if (typeof page === "number") res.writeHead(page).end();
    else res.writeHead(200, { "content-type": "text/plain" }).end(page);
  });
  server.keepAliveTimeout = 60_000;
  const host = options.host ?? "127.0.0.1";
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${port}`,
    port,
    gets,
    get posts() {
      return posts;
    },
    get open() {
      return open;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}
