const DECIMAL = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;
const HEX = /^([+-]?)0x([0-9a-f]*)(?:\.([0-9a-f]*))?(?:p([+-]?\d{1,5}))?$/i;
const INFINITE = /^([+-]?)inf(?:inity)?$/i;
const NOT_A_NUMBER = /^[+-]?nan$/i;

/** Whole milliseconds, which no clock of seconds has had since 1973 and none will have before the year 5138. */
const SECONDS_MAX = 1e11;
const SECONDS_MIN = 1e8;

/** A sample value as Go reads it, which is what exporters are tested with: exponents, hex floats, Inf and NaN in any case. */
export function parseMetricValue(token: string): number | undefined {
  if (DECIMAL.test(token)) return Number(token);
  if (NOT_A_NUMBER.test(token)) return Number.NaN;
  const infinite = INFINITE.exec(token);
  if (infinite !== null) return infinite[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  return parseHex(token);
}

function parseHex(token: string): number | undefined {
  const match = HEX.exec(token);
  if (match === null) return undefined;
  const [, sign, whole = "", fraction = "", exponent = "0"] = match;
  const digits = whole + fraction;
  if (digits === "" || digits.length > 64) return undefined;
  let mantissa = 0;
  for (const digit of digits) mantissa = mantissa * 16 + Number.parseInt(digit, 16);
  const value = mantissa * 2 ** (Number(exponent) - 4 * fraction.length);
  return sign === "-" ? -value : value;
}

/**
 * Milliseconds. The text format counts whole milliseconds, OpenMetrics seconds with a fraction; a text page with a fraction, or with a
 * whole number that can only be seconds, is read as seconds.
 */
export function parseTimestampMs(token: string, openMetrics: boolean): number | undefined {
  if (!DECIMAL.test(token)) return undefined;
  const value = Number(token);
  if (!Number.isFinite(value)) return undefined;
  const size = Math.abs(value);
  const isSeconds = openMetrics
    ? size < SECONDS_MAX
    : !Number.isInteger(value) || (size > SECONDS_MIN && size < SECONDS_MAX);
  return isSeconds ? Math.round(value * 1000) : value;
}
