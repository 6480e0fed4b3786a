const DIGITS_MAX = 16;

/**
 * Bytes that a `Content-Length` announces; -1 for anything but one to sixteen digits, and for a number that can't be told exactly.
 * Reckoned by hand, since each message has one and the language's own conversion leaves the compiled code for it.
 */
export function parseContentLength(value: string): number {
  const { length } = value;
  if (length === 0 || length > DIGITS_MAX) return -1;
  let bytes = 0;
  for (let i = 0; i < length; i++) {
    const digit = value.charCodeAt(i) - 0x30;
    if (digit < 0 || digit > 9) return -1;
    bytes = bytes * 10 + digit;
  }
  return bytes <= Number.MAX_SAFE_INTEGER ? bytes : -1;
}
