import type { ServerResponse } from "node:http";
import { constants, deflateRaw } from "node:zlib";
import type { LoggedFrame } from "../../decide/board/change-log.ts";

/**
 * One board's stream.
 *
 * Invariants:
 *   V1. Nothing is queued for a reader that is slow: it is written to when it has taken what it was sent, and then gets what brings it
 *       to the newest state.
 *   V2. Every frame is compressed once for all readers: each is a piece of a deflate stream of its own that looks back at nothing.
 */
export class BoardViewer {
  readonly #res: ServerResponse;
  readonly #isCompressed: boolean;
  readonly #onBytes: (bytes: number) => void;
  /** What it has; null: it needs a snapshot. */
  at: number | null;
  isBusy = false;
  /** It has not taken what it was sent. */
  isBlocked = false;
  isOver = false;

  constructor(
    res: ServerResponse,
    options: {
      readonly at: number | null;
      readonly isCompressed: boolean;
      readonly onBytes: (bytes: number) => void;
      readonly onDrain: () => void;
      readonly onOver: () => void;
    },
  ) {
    this.#res = res;
    this.at = options.at;
    this.#isCompressed = options.isCompressed;
    this.#onBytes = options.onBytes;
    res.on("close", () => {
      this.isOver = true;
      options.onOver();
    });
    res.on("drain", () => {
      this.isBlocked = false;
      options.onDrain();
    });
    if (this.#isCompressed) this.#put(GZIP_HEAD);
  }

  get mayTake(): boolean {
    return !this.isOver && !this.isBusy && !this.isBlocked;
  }

  async write(frame: LoggedFrame): Promise<void> {
    const bytes = this.#isCompressed ? await compressed(frame) : Buffer.from(frame.text);
    if (!this.isOver) this.#put(bytes);
  }

  end(): void {
    if (this.isOver) return;
    // The last block, and what a gzip reader wants behind it; the sums are not kept, and a reader of a stream does not wait for them.
    this.#res.end(this.#isCompressed ? GZIP_TAIL : undefined);
  }

  #put(bytes: Buffer): void {
    this.#onBytes(bytes.length);
    if (!this.#res.write(bytes)) this.isBlocked = true;
  }
}

const GZIP_HEAD = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
const GZIP_TAIL = Buffer.from([3, 0]);
const LEVEL = 4;
const made = new WeakMap<LoggedFrame, Promise<Buffer>>();

function compressed(frame: LoggedFrame): Promise<Buffer> {
  const known = made.get(frame);
  if (known !== undefined) return known;
  const work = new Promise<Buffer>((resolve, reject) => {
    deflateRaw(frame.text, { level: LEVEL, finishFlush: constants.Z_SYNC_FLUSH }, (error, bytes) =>
      error === null ? resolve(bytes) : reject(error),
    );
  });
  made.set(frame, work);
  return work;
}
