import { Secret } from "../kernel/secret.ts";

/** Names of environment variables and their values. Only `main.ts` hands over the real ones. */
export type Env = Readonly<Record<string, string | undefined>>;

/** A variable that is there and not empty. */
export function valueIn(env: Env, name: string): string | undefined {
  const value = Object.hasOwn(env, name) ? env[name] : undefined;
  return value === "" ? undefined : value;
}

export function secretIn(env: Env, name: string | undefined): Secret | null {
  const value = name === undefined ? undefined : valueIn(env, name);
  return value === undefined ? null : new Secret(value);
}
