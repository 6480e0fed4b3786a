import type {
  UpstreamClient,
  UpstreamExchange,
  UpstreamHandler,
  UpstreamHead,
  UpstreamRequest,
  UpstreamTarget,
} from "../../upstream/port.ts";

export type Gathered =
  | { readonly kind: "answer"; readonly head: UpstreamHead; readonly chunks: readonly Buffer[] }
  | { readonly kind: "tooLarge" }
  | { readonly kind: "broken" };

/** One exchange whose answer is taken in whole, up to `bytesMax`. `onChunk` sees the pieces as they come. Ends once. */
export function gather(
  client: UpstreamClient,
  target: UpstreamTarget,
  request: UpstreamRequest,
  options: { readonly bytesMax: number; readonly onChunk?: (chunk: Buffer) => void },
  done: (gathered: Gathered) => void,
): UpstreamExchange {
  const chunks: Buffer[] = [];
  let bytes = 0;
  let head: UpstreamHead | null = null;
  const exchange = client.exchange(target, request, {
    onInformational: () => {},
    onHead: (seen) => {
      head = seen;
      return false;
    },
    onData: (payload) => {
      bytes += payload.length;
      if (bytes > options.bytesMax) {
        exchange.abort();
        done({ kind: "tooLarge" });
        return true;
      }
      const chunk = Buffer.from(payload);
      chunks.push(chunk);
      options.onChunk?.(chunk);
      return true;
    },
    onChunks: () => "done",
    onEnd: () => done(head === null ? { kind: "broken" } : { kind: "answer", head, chunks }),
    onError: () => done({ kind: "broken" }),
  });
  return exchange;
}

/** Hands a whole answer to who waits for an exchange's, no faster than it is taken. */
export class Delivery {
  readonly #handler: UpstreamHandler;
  readonly #status: number;
  readonly #chunks: readonly Buffer[];
  readonly #contentType: string;
  #next = 0;
  #paused = false;
  #over = false;

  constructor(
    handler: UpstreamHandler,
    status: number,
    chunks: readonly Buffer[],
    contentType: string = "application/json",
  ) {
    this.#handler = handler;
    this.#status = status;
    this.#chunks = chunks;
    this.#contentType = contentType;
  }

  /** By whoever can already be told to pause or abort it. */
  start(): void {
    const contentLength = this.#chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    const rawHeaders = ["content-type", this.#contentType];
    this.#handler.onHead({ status: this.#status, rawHeaders, framing: "length", contentLength });
    this.#go();
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    // Not inside the caller's call: who resumes is not called back in it.
    setImmediate(() => this.#go());
  }

  abort(): void {
    this.#over = true;
  }

  #go(): void {
    while (!this.#paused && !this.#over) {
      const chunk = this.#chunks[this.#next];
      if (chunk === undefined) {
        this.#over = true;
        this.#handler.onEnd([]);
        return;
      }
      this.#next += 1;
      if (!this.#handler.onData(chunk)) this.#paused = true;
    }
  }
}

export const brokenOff = (kind: "reset" | "protocol", message: string): Parameters<UpstreamHandler["onError"]>[0] => ({
  kind,
  message,
  reused: false,
  completeFraming: Buffer.alloc(0),
});
