import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import { readCredential } from "../../access/credentials.ts";
import { renderErrorBody } from "../../contract/error-body.ts";
import { checkRequestHeaders } from "../../decide/http/header-rules.ts";
import { canonicalPath } from "../../decide/http/request-line.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { Secret } from "../../kernel/secret.ts";
import { STATUS_CODES } from "../../kernel/node-builtins.ts";

/** A request to go on with another protocol. Nothing has been written yet. */
export interface Upgrade {
  readonly req: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  /** What was shown; not yet looked at. Null: nothing. */
  readonly credential: Secret | null;
}

export type UpgradeHandlers = Readonly<Record<string, (upgrade: Upgrade) => void>>;

const OTHER_VERSION = /^\/(?:agent|gateway)\/v[0-9]{1,4}$/;

/**
 * The only requests that may leave HTTP: exact paths, with one credential at most, framed as any other request must be.
 * `vouched`: only with a certificate that the server's authorities vouch for.
 */
export function serveUpgrades(server: Server, handlers: UpgradeHandlers, vouched: boolean): void {
  server.on("upgrade", (req: IncomingMessage, socket: Duplex, head: Buffer) => {
    // A peer that breaks off while it is answered is no fault of this process.
    socket.on("error", () => socket.destroy());
    const framing = checkRequestHeaders(req.rawHeaders, req.httpVersion);
    if (framing.kind === "bad") return refuseUpgrade(socket, framing.code, framing.why);
    const target = canonicalPath(req.url ?? "");
    if (target.kind !== "ok") return refuseUpgrade(socket, "BAD_REQUEST", "the request target can't be read");
    // Agents and gateways are no browsers, and only a browser says which page it is asked by (statement D34).
    if (req.headers.origin !== undefined)
      return refuseUpgrade(socket, "ORIGIN_REFUSED", "no page of a browser may open a connection here");
    const handler = Object.hasOwn(handlers, target.path) ? handlers[target.path] : undefined;
    if (handler === undefined) {
      const why = OTHER_VERSION.test(target.path)
        ? `this control plane speaks ${Object.keys(handlers).join(" and ")}, and no other version`
        : "nothing here speaks another protocol";
      return refuseUpgrade(socket, "ROUTE_UNKNOWN", why);
    }
    if (vouched && !("authorized" in socket && socket.authorized === true))
      return refuseUpgrade(socket, "FORBIDDEN", "agents and gateways have to show a certificate here");
    const credential = readCredential(req.rawHeaders, req.url ?? "");
    if (credential.kind === "bad") return refuseUpgrade(socket, "BAD_REQUEST", credential.why);
    return handler({ req, socket, head, credential: credential.kind === "none" ? null : new Secret(credential.value) });
  });
}

/** Answers and ends the connection. */
export function refuseUpgrade(socket: Duplex, code: ErrorCode, message: string): void {
  const { status, text } = renderErrorBody(code, message, { dialect: "openai" });
  socket.once("finish", () => socket.destroy());
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Refused"}\r\nconnection: close\r\ncontent-type: application/json\r\n` +
      `cache-control: no-store\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  );
}
