import type { AddressInfo } from "node:net";
import { type Dialect, renderErrorBody } from "../../contract/error-body.ts";
import { ERRORS, type ErrorCode } from "../../kernel/errors.ts";
import { STATUS_CODES } from "../../kernel/node-builtins.ts";
import type { ClientReply, ClientRequest } from "./client-port.ts";

/** What a listening side tells of. */
export interface EdgeHandlers {
  onRequest(req: ClientRequest, res: ClientReply, expectsContinue: boolean): void;
  /** What never became a request of its own is answered with this code, or cut. Returns the id that its answer bears. */
  onRefused(code: ErrorCode): string;
}

/**
 * The listening side, in two implementations: our own on `node:net` and one on `node:http`.
 *
 * Invariants of both:
 *   E1. A pipelined request is looked at only when the answer before it has ended well; behind an error, or an answer that
 *       closes the connection, it is never looked at.
 *   E2. While an answer runs its connection is read, since only that shows that the client has gone: what is too much to wait
 *       in memory behind it is thrown away unexecuted, with all that follows, and the connection ends with the answer.
 *   E3. Bytes that are no HTTP get one JSON answer and the connection is closed; they are never mixed up with another answer.
 */
export interface EdgeServer {
  /** Client connections. */
  readonly connections: number;
  listen(host: string, port: number): Promise<AddressInfo>;
  /** Stops listening and closes idle connections; running answers go on. Resolves when all connections are gone. */
  close(): Promise<void>;
  closeIdle(): void;
  destroyAll(): void;
  setConnectionsMax(count: number): void;
}

/** Bytes of a request's body that come behind its answer, or of what nobody will look at, before the connection is cut. */
export const DISCARDED_BYTES_MAX = 64 * 1024 * 1024;

/** A refusal at the edge: answered, and the connection is of no further use. */
export function refuseAtEdge(
  res: ClientReply,
  requestId: string,
  code: ErrorCode,
  message: string,
  dialect: Dialect = "openai",
): void {
  res.endConnection();
  const { status, text } = renderErrorBody(code, message, { dialect, requestId });
  const headers = ["content-type", "application/json", "x-request-id", requestId, "connection", "close"];
  res.sendWhole(status, headers, text, code);
}

export const refuseExpectation = (res: ClientReply, handlers: EdgeHandlers): void =>
  refuseAtEdge(
    res,
    handlers.onRefused("EXPECTATION_FAILED"),
    "EXPECTATION_FAILED",
    "only Expect: 100-continue is understood",
  );

/** The bytes of an answer where there is no request to answer; the connection ends with it. */
export function renderRawRefusal(requestId: string, code: ErrorCode, fault?: string): string {
  const message =
    code === "METHOD_NOT_ALLOWED"
      ? "no route takes this method"
      : fault === undefined
        ? ERRORS[code].meaning
        : `${ERRORS[code].meaning}: ${fault}`;
  const { status, text } = renderErrorBody(code, message, { dialect: "openai", requestId });
  const allow = code === "METHOD_NOT_ALLOWED" ? "allow: GET, POST, DELETE\r\n" : "";
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Bad Request"}\r\ncontent-type: application/json\r\nx-request-id: ${requestId}\r\n${allow}connection: close\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;
}

/** `Expect` as it is met: anything but 100-continue is refused. */
export const expectsContinue = (expect: string): boolean => /(?:^|\W)100-continue(?:$|\W)/i.test(expect);
