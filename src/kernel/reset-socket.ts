import type { Socket } from "node:net";

/**
 * Ends a connection in a way that nobody can take for a regular end. A socket that has said its end already is only closed: Node can't
 * reset it, and would never close it after having tried.
 */
export function resetSocket(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
