import { inspect } from "node:util";

const MASK = "[redacted]";
/** A shorter value stands in ordinary words too, which must not be spoilt. */
const MASKED_CHARS_MIN = 8;

/** A value that can't be printed by accident: string conversion, JSON and inspect all show a mask. */
export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  /** The only way to the value. Call it where the value is sent or compared, and nowhere else. */
  reveal(): string {
    return this.#value;
  }

  /** The text with the value masked wherever it stands: for words of somebody who was told the value. */
  maskIn(text: string): string {
    return this.#value.length < MASKED_CHARS_MIN ? text : text.replaceAll(this.#value, MASK);
  }

  isIn(bytes: Buffer): boolean {
    return this.#value.length >= MASKED_CHARS_MIN && bytes.includes(this.#value, 0, "latin1");
  }

  toString(): string {
    return MASK;
  }

  toJSON(): string {
    return MASK;
  }

  [inspect.custom](): string {
    return MASK;
  }
}
