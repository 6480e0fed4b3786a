import { inspect } from "node:util";

const MASK = "[redacted]";

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
