import type { ErrorCode } from "../../kernel/errors.ts";

/**
 * The narrow interface between the gateway and one client: a request, and the place for its one answer. What stands behind it
 * may be a connection, or something in this process that wants an answer; nothing above it knows.
 *
 * Order on the answer's side, each step at most once unless marked:
 *
 *   sendInformational* → sendWhole | begin → (writeFramed | writePayload)* → end | breakOff
 *
 * Invariants:
 *   P1. No method throws because of what the client did: towards a client that is gone they do nothing.
 *   P2. `onGone` is called once, and only while the answer has not ended: after the end nobody is told.
 *   P3. The listeners (`onGone`, `onDrain`, those of `readBody`) are never called inside a call of a method.
 *   P4. The bytes given to `writePayload` are copied or written before it returns; those given to `writeFramed` are the
 *       callee's for as long as it says.
 */
export interface ClientRequest {
  readonly method: string;
  /** As it stands in the request line. */
  readonly target: string;
  /** "1.1", "1.0", or what else was claimed. */
  readonly httpVersion: string;
  /** Flat list as it came: name, value, name, value. */
  readonly rawHeaders: readonly string[];
  /** Undefined for a client without an address, or one that is gone. */
  readonly remoteAddress: string | undefined;
  /** All of the body has come. */
  readonly complete: boolean;
  /**
   * From now on the body goes to this reader, and no longer to one before it. The first one is named before control returns to
   * the event loop: a body that nobody reads is thrown away as it comes.
   */
  readBody(reader: BodyReader): void;
  /**
   * No more of the body is taken from the client until `resumeBody`; a little that is read already may still come. While nothing is
   * taken nobody can see that the client has left, so it is for moments.
   */
  pauseBody(): void;
  resumeBody(): void;
}

export interface BodyReader {
  /** All pieces are kept to the end, so that memory for the whole of a body whose length is known may be taken at once. */
  readonly holdsAll?: boolean;
  /** The bytes are the reader's to keep. */
  onData(chunk: Buffer): void;
  /** The body is whole. */
  onEnd(): void;
  /** The client broke off inside the body. May come after `onEnd` when the connection closes later. */
  onBroken(): void;
}

export interface ClientReply {
  /** Whether another server's chunk framing can be passed on to this client (`writeFramed` after a `begin` without length). */
  readonly takesFraming: boolean;
  /** Whether answers of the 1xx kind can be sent. */
  readonly takesInformational: boolean;
  /** A head, or a whole answer, was given. */
  readonly begun: boolean;
  /** The client is gone: nothing reaches it any more. */
  readonly gone: boolean;
  /** Bytes of this answer that were given and that the client has not taken yet; 0 once it has ended and was taken whole, or the client is gone. */
  readonly untakenBytes: number;
  /** The client left before the answer ended. */
  onGone: (() => void) | null;
  /** After a write that was "blocked": the client takes again. */
  onDrain: (() => void) | null;

  /** 100. */
  sendContinue(): void;
  sendInformational(status: number, rawHeaders: readonly string[]): void;
  /**
   * A whole answer; `headers` without framing, the length is added here. `refusal`: the answer is the gateway's own no, with
   * this code; it changes nothing for a client on the wire.
   */
  sendWhole(status: number, headers: string[], body: Buffer | string, refusal?: ErrorCode): void;
  /**
   * The head of an answer that goes on piece by piece. Without a length the body is framed in chunks where `takesFraming`, else
   * it ends with the connection. False: the client can't be written to any more, and nothing was sent.
   */
  begin(status: number, headers: string[], contentLength: number | undefined): boolean;
  /** Bytes in chunk framing, or of a body with a length. */
  writeFramed(bytes: Buffer): WriteResult;
  /** Payload, framed here where it must be. */
  writePayload(payload: Buffer): WriteResult;
  /** The regular end. `trailers` are those that may go on; they are left out where the framing has no place for them. */
  end(trailers: readonly string[]): void;
  /** Ends so that no client can take it for a regular end, behind what was written. */
  breakOff(): void;
  /** Throws away what was not taken and closes. */
  destroy(): void;
  /** Whatever came behind this request on its connection is never looked at; the connection ends with this answer. */
  endConnection(): void;
}

/**
 * "taken": the bytes are nobody's any more. "retained": they may still be needed, so the caller gives their memory away.
 * "blocked": retained, and the client takes nothing at the moment: more would only fill memory, and `onDrain` follows.
 */
export type WriteResult = "taken" | "retained" | "blocked";
