export type IdempotencyHeader =
  | { readonly kind: "absent" }
  | { readonly kind: "key"; readonly key: string }
  /** `why` is for the client. */
  | { readonly kind: "bad"; readonly why: string };

export const IDEMPOTENCY_KEY_CHARS_MAX = 255;
/** Blanks inside a key would be trimmed or joined differently on the way. */
const VISIBLE_ASCII = /^[\x21-\x7e]+$/;
const ABSENT: IdempotencyHeader = { kind: "absent" };

/** `Idempotency-Key`: 1 to 255 visible ASCII characters. That it comes once is judged with the other headers. */
export function parseIdempotencyKey(value: string | undefined): IdempotencyHeader {
  if (value === undefined) return ABSENT;
  if (value.length === 0) return { kind: "bad", why: "Idempotency-Key is empty" };
  if (value.length > IDEMPOTENCY_KEY_CHARS_MAX)
    return { kind: "bad", why: `Idempotency-Key is longer than ${IDEMPOTENCY_KEY_CHARS_MAX} characters` };
  if (!VISIBLE_ASCII.test(value))
    return { kind: "bad", why: "Idempotency-Key has a character that is not visible ASCII" };
  return { kind: "key", key: value };
}

/**
 * Under which name a key is kept: the caller and the route are part of it, so that nobody meets another's record and one key
 * may be used once per route. Lengths are written in front, so that no two triples give one text.
 */
export const idempotencyScope = (keyId: string, route: string, key: string): string =>
  [keyId, route, key].map((part) => `${part.length}:${part}`).join("");
