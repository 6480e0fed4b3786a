import { createServer, type AddressInfo, type Server, type Socket } from "node:net";

/** A request as the server saw it, and the socket to answer on by hand. */
export interface RawCall {
  readonly socket: Socket;
  /** Head up to and with the blank line, Latin-1. */
  readonly head: string;
  readonly method: string;
  readonly path: string;
  readonly body: Buffer;
  /** Counts the connections of this server from 0. */
  readonly connection: number;
  /** Counts the requests of this connection from 0. */
  readonly request: number;
}

export interface RawServerOptions {
  readonly onCall: (call: RawCall) => void;
  readonly onConnection?: (socket: Socket, connection: number) => void;
  /** Call as soon as the head is there, with an empty body. */
  readonly beforeBody?: boolean;
  readonly host?: string;
}

/** An engine that is scripted byte by byte. It reads requests strictly by Content-Length and keeps every one it saw. */
export class RawServer implements AsyncDisposable {
  readonly calls: RawCall[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  connections = 0;

  private constructor(options: RawServerOptions) {
    this.#server = createServer({ noDelay: true }, (socket) => {
      const connection = this.connections;
      this.connections += 1;
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      socket.on("error", () => {}); // Clients of these tests leave in every way.
      options.onConnection?.(socket, connection);
      this.#read(socket, connection, options);
    });
  }

  static async listen(options: RawServerOptions): Promise<RawServer> {
    const server = new RawServer(options);
    await new Promise<void>((resolve, reject) => {
      server.#server.once("error", reject);
      server.#server.listen(0, options.host ?? "127.0.0.1", resolve);
    });
    return server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #read(socket: Socket, connection: number, options: RawServerOptions): void {
    let buffered = Buffer.alloc(0);
    let request = 0;
    let skip = 0;
    socket.on("data", (data: Buffer) => {
      buffered = Buffer.concat([buffered, data]);
      for (;;) {
        const skipped = Math.min(skip, buffered.length);
        buffered = buffered.subarray(skipped);
        skip -= skipped;
        const headEnd = buffered.indexOf("\r\n\r\n");
        if (skip > 0 || headEnd === -1) return;
        const head = buffered.toString("latin1", 0, headEnd + 4);
        const length = Number(/^content-length: *(\d+)\r$/im.exec(head)?.[1] ?? 0);
        const bodyEnd = headEnd + 4 + length;
        if (options.beforeBody !== true && buffered.length < bodyEnd) return;
        const body = options.beforeBody === true ? Buffer.alloc(0) : buffered.subarray(headEnd + 4, bodyEnd);
        if (options.beforeBody === true) {
          buffered = buffered.subarray(headEnd + 4);
          skip = length;
        } else buffered = buffered.subarray(bodyEnd);
        const [method = "", path = ""] = head.split(" ");
        const call: RawCall = { socket, head, method, path, body, connection, request };
        request += 1;
        this.calls.push(call);
        options.onCall(call);
      }
    });
  }
}
