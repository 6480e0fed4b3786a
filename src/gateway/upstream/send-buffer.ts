/**
 * The memory in which small requests are put together, head and body, for all connections of a client. Most writes are taken by the
 * system at once, and then the same memory serves the next request: a buffer for each call would lie outside of V8's heap, where a
 * few thousand of them a second are a full collection every hundred milliseconds.
 *
 * Invariants:
 *   S1. Bytes that were given away (a write that has not finished) are never written again: the next request is put together behind
 *       them or in new memory.
 *   S2. A request is made of what was copied for it, and of nothing that lay there before.
 */
const SIZE = 65_536;

export class SendBuffer {
  #bytes = Buffer.allocUnsafeSlow(SIZE);
  #from = 0;
  #joined = 0;

  /** Head and body in one piece, which is valid until the next call unless it is given away. `head` in Latin-1. */
  join(head: string, body: readonly Buffer[], bodyBytes: number): Buffer {
    const length = head.length + bodyBytes;
    let bytes = this.#bytes;
    let from = this.#from;
    if (length > SIZE) {
      bytes = Buffer.allocUnsafeSlow(length);
      from = 0;
      this.#joined = 0;
    } else {
      if (length > SIZE - from) {
        bytes = this.#bytes = Buffer.allocUnsafeSlow(SIZE);
        from = this.#from = 0;
      }
      this.#joined = length;
    }
    let at = from + bytes.write(head, from, "latin1");
    for (const part of body) at += part.copy(bytes, at);
    return bytes.subarray(from, at);
  }

  /** What was joined last is still needed. */
  giveAway(): void {
    this.#from += this.#joined;
    this.#joined = 0;
  }
}
