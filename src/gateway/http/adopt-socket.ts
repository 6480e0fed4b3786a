import { Socket, type SocketConstructorOpts } from "node:net";

/**
 * The same connection as a socket that reads into the caller's memory. `node:net` has that option for sockets that connect, and
 * passes it on to none that is accepted, so the handle changes its owner here, before anything was read (`pauseOnConnect`). Where
 * the handle is not to be found, the accepted socket serves, and its reads are copied to where they would have gone.
 */
export function adoptSocket(accepted: Socket, onread: ReadInto): Socket {
  const holder = accepted as unknown as { _handle?: unknown };
  const handle = holder._handle;
  if (handle === undefined || handle === null) return readByEvents(accepted, onread);
  holder._handle = null;
  accepted.destroy();
  return new Socket({ handle, onread, allowHalfOpen: false } as unknown as SocketConstructorOpts);
}

export interface ReadInto {
  /** Where the next read lands. */
  readonly buffer: () => Uint8Array;
  readonly callback: (length: number) => boolean;
}

export function readByEvents(socket: Socket, { buffer, callback }: ReadInto): Socket {
  socket.on("data", (chunk: Buffer) => {
    for (let at = 0; at < chunk.length && !socket.destroyed;) {
      const window = buffer();
      const length = Math.min(window.length, chunk.length - at);
      window.set(chunk.subarray(at, at + length));
      at += length;
      callback(length);
    }
  });
  socket.resume();
  return socket;
}
