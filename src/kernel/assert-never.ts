/** Makes a switch over a union exhaustive: a new case fails to compile, and a value from outside fails loudly. */
export function assertNever(value: never, what: string): never {
  throw new Error(`unexpected ${what}: ${JSON.stringify(value)}`);
}
