import { createServer } from "node:net";

/**
 * Ports for engines. The range is walked round and round, so that a port that has just made trouble comes last. A port is tried
 * before it is given: some engines share a port with another process without an error.
 */
export class EnginePorts {
  readonly #first: number;
  readonly #count: number;
  #next = 0;

  constructor(range: { readonly first: number; readonly last: number }) {
    this.#first = range.first;
    this.#count = range.last - range.first + 1;
  }

  /** Null when every port is taken. */
  async take(host: string, taken: ReadonlySet<number>): Promise<number | null> {
    for (let i = 0; i < this.#count; i += 1) {
      const port = this.#first + ((this.#next + i) % this.#count);
      if (taken.has(port) || !(await isFree(host, port))) continue;
      this.#next = (this.#next + i + 1) % this.#count;
      return port;
    }
    return null;
  }
}

function isFree(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", () => resolve(false));
    probe.listen({ host, port, exclusive: true }, () => probe.close(() => resolve(true)));
  });
}
