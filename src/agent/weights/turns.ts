/** Lets so many at once do something; the others wait in the order in which they came. */
export class Turns {
  readonly #atOnce: number;
  #taken = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /** To be disposed of when it is over. Rejects with the signal's reason. */
  async take(signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted();
    if (this.#taken < this.#atOnce) this.#taken += 1;
    else await this.#wait(signal);
    let isOver = false;
    return {
      [Symbol.dispose]: () => {
        if (isOver) return;
        isOver = true;
        const next = this.#waiting.shift();
        // The turn passes from hand to hand, so that nobody who comes now gets in between.
        if (next === undefined) this.#taken -= 1;
        else next();
      },
    };
  }

  #wait(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const go = (): void => {
        signal.removeEventListener("abort", leave);
        resolve();
      };
      const leave = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(go), 1);
        reject(signal.reason as Error);
      };
      this.#waiting.push(go);
      signal.addEventListener("abort", leave, { once: true });
    });
  }
}
