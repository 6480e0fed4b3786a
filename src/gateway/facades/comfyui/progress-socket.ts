import { WebSocket } from "ws";
import type { ComfySite } from "./comfy-site.ts";

/** Previews come too; a larger message ends the socket, and looks go on without it. */
const MESSAGE_BYTES_MAX = 32 * 1024 * 1024;
const OPEN_MS_MAX = 5_000;

/**
 * Hears what ComfyUI tells the client of one prompt. It is there for progress and for an early end; whoever relies on it for more
 * waits for ever, so it is not dialled again.
 */
export class ProgressSocket implements Disposable {
  readonly #socket: WebSocket;
  #open = false;

  constructor(site: ComfySite, clientId: string, onMessage: (text: string) => void) {
    const { protocol, hostname, port } = site.target;
    const host = hostname.includes(":") ? `[${hostname}]` : hostname;
    const scheme = protocol === "https:" ? "wss" : "ws";
    this.#socket = new WebSocket(`${scheme}://${host}:${port}${site.basePath}/ws?clientId=${clientId}`, {
      headers: headersOf(site.headers),
      handshakeTimeout: OPEN_MS_MAX,
      maxPayload: MESSAGE_BYTES_MAX,
      perMessageDeflate: false,
    });
    this.#socket.on("open", () => (this.#open = true));
    this.#socket.on("close", () => (this.#open = false));
    this.#socket.on("error", () => {}); // Its close follows.
    this.#socket.on("message", (data, isBinary) => {
      if (!isBinary) onMessage(Buffer.isBuffer(data) ? data.toString("utf8") : "");
    });
  }

  get open(): boolean {
    return this.#open;
  }

  [Symbol.dispose](): void {
    this.#open = false;
    this.#socket.terminate();
  }
}

/** Those that let us in. */
function headersOf(raw: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (let i = 0; i + 1 < raw.length; i += 2)
    if (["host", "authorization"].includes((raw[i] ?? "").toLowerCase())) headers[raw[i] ?? ""] = raw[i + 1] ?? "";
  return headers;
}
