/** One message of a stream, made once for all who get it. */
export interface LoggedFrame {
  readonly version: number;
  readonly text: string;
}

/**
 * The newest changes by version, so that a board whose connection broke gets what it missed.
 *
 * Invariant:
 *   L1. `since(v)` is every change above `v` in order, or null: never a part of them.
 */
const CHANGES_MAX = 120;
const CHARS_MAX = 16 * 1024 * 1024;

export class ChangeLog {
  readonly #frames: LoggedFrame[] = [];
  #chars = 0;
  /** The newest version. */
  version = 0;

  add(render: (version: number) => string): void {
    this.version += 1;
    const frame = { version: this.version, text: render(this.version) };
    this.#frames.push(frame);
    this.#chars += frame.text.length;
    while (this.#frames.length > CHANGES_MAX || (this.#chars > CHARS_MAX && this.#frames.length > 1))
      this.#chars -= this.#frames.shift()?.text.length ?? 0;
  }

  since(version: number): readonly LoggedFrame[] | null {
    const missing = this.version - version;
    if (missing < 0 || missing > this.#frames.length) return null;
    return missing === 0 ? [] : this.#frames.slice(-missing);
  }
}
