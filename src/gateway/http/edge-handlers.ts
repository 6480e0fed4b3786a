import { renderErrorBody } from "../../contract/error-body.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import type { ClientReply, ClientRequest } from "./client-port.ts";

/** What a listening side tells of. */
export interface EdgeHandlers {
  onRequest(req: ClientRequest, res: ClientReply, expectsContinue: boolean): void;
  /** Bytes that are no request were answered, or cut. */
  onRefusedBytes(code: ErrorCode): void;
}

/** A refusal at the edge: answered, and the connection is of no further use. */
export function refuseAtEdge(res: ClientReply, code: ErrorCode, message: string): void {
  res.endConnection();
  const { status, text } = renderErrorBody(code, message, { dialect: "openai" });
  res.sendWhole(status, ["content-type", "application/json", "connection", "close"], text, code);
}
