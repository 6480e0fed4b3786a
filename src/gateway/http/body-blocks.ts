/** From this size on the system maps memory page by page at each use, which costs as much as reading into it. */
const BLOCK_BYTES_MIN = 256 * 1024;
/** What may lie unused. */
const FREE_BYTES_MAX = 64 * 1024 * 1024;
/** A block is used for a body that fills so much of it. */
const FILL_MIN = 0.75;

interface Block {
  readonly memory: ArrayBuffer;
  /** No trim has seen it. */
  fresh: boolean;
}

/**
 * Memory of large bodies, used again. New memory for each would cost a quarter of what a body of some megabytes costs, and V8, which
 * counts what was taken since its last collection, would answer a dozen of them with a full one.
 *
 * Invariants:
 *   L1. A block that comes back is detached from all views of it before it is lent again: who still has one finds it empty, never
 *       another body.
 *   L2. What lies unused is bounded, and is given back to the system when nobody wanted it from one trim to the next.
 */
export class BodyBlocks {
  readonly #lent = new WeakSet<ArrayBuffer>();
  #free: Block[] = [];
  #freeBytes = 0;

  get freeBytes(): number {
    return this.#freeBytes;
  }

  take(length: number): Buffer {
    if (length < BLOCK_BYTES_MIN) return Buffer.allocUnsafeSlow(length);
    const at = this.#free.findLastIndex(
      ({ memory: { byteLength } }) => length <= byteLength && length >= byteLength * FILL_MIN,
    );
    const [block] = at < 0 ? [] : this.#free.splice(at, 1);
    const memory = block?.memory ?? (Buffer.allocUnsafeSlow(length).buffer as ArrayBuffer);
    if (block !== undefined) this.#freeBytes -= memory.byteLength;
    this.#lent.add(memory);
    return Buffer.from(memory, 0, length);
  }

  /** False: the memory is none of these. */
  giveBack(memory: ArrayBufferLike): boolean {
    if (!(memory instanceof ArrayBuffer) || !this.#lent.delete(memory)) return false;
    if (memory.detached) return true; // It went to another thread.
    if (this.#freeBytes + memory.byteLength > FREE_BYTES_MAX) memory.transfer(0);
    else {
      const again = memory.transfer();
      this.#freeBytes += again.byteLength;
      this.#free.push({ memory: again, fresh: true });
    }
    return true;
  }

  /** To be called now and then while bodies may come. */
  trim(): void {
    this.#free = this.#free.filter((block) => {
      if (block.fresh) {
        block.fresh = false;
        return true;
      }
      this.#freeBytes -= block.memory.byteLength;
      block.memory.transfer(0);
      return false;
    });
  }

  /** No body will come soon. */
  clear(): void {
    for (const { memory } of this.#free) memory.transfer(0);
    this.#free = [];
    this.#freeBytes = 0;
  }
}

/** Those of the process. */
export const bodyBlocks = new BodyBlocks();
