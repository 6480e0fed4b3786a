export type CanonicalTarget =
  | {
      readonly kind: "ok";
      /** One spelling for each path: unreserved characters are not percent-encoded, hex digits are capitals. */
      readonly path: string;
      /** As it came, with the question mark; empty without one. */
      readonly query: string;
    }
  | { readonly kind: "tooLong" }
  /** `why` is for the client. */
  | { readonly kind: "bad"; readonly why: string };

/** A target of 8 KiB is refused, so a longer one is too. */
export const TARGET_CHARS_MAX = 8_191;
/** What follows is one id, whose slashes may come raw or encoded (a model named `org/model` or `/models/x`). */
const ID_PREFIXES = ["/v1/models/"];

const bad = (why: string): CanonicalTarget => ({ kind: "bad", why });

const PLAIN_PATH = /^(?:\/[A-Za-z0-9_~@:=,+!$&'()*-][A-Za-z0-9._~@:=,+!$&'()*-]*)+$/;
/** Visible ASCII without `#`, which no client sends in a target. */
const TARGET_CHARS = /^[\x21\x22\x24-\x7e]*$/;
const ENCODED = /%([0-9A-Fa-f]{2})?/g;
const UNRESERVED = /[A-Za-z0-9._~-]/;

/**
 * Reads the request target once, in the form in which permission, routing, logs and the engine all see it. Only the
 * origin form is taken. What different readers resolve differently is refused and not repaired: dot segments, empty
 * segments, backslashes, path parameters, encoded slashes and control characters, and percent signs that encode nothing.
 */
export function canonicalPath(target: string): CanonicalTarget {
  if (target.length > TARGET_CHARS_MAX) return { kind: "tooLong" };
  if (!target.startsWith("/")) return bad("the request target must be a path that begins with /");
  if (!TARGET_CHARS.test(target)) return bad("the request target holds a character that must be percent-encoded");
  const mark = target.indexOf("?");
  const raw = mark < 0 ? target : target.slice(0, mark);
  const query = mark < 0 ? "" : target.slice(mark);
  if (raw === "/" || PLAIN_PATH.test(raw)) return { kind: "ok", path: raw, query };

  const decoded = normalise(raw);
  if (decoded.kind === "bad") return decoded;
  const path = decoded.path;
  const prefix = ID_PREFIXES.find((candidate) => path.startsWith(candidate));
  const head = prefix ?? path;
  if (/[\\;]|%5C/.test(path)) return bad("the path holds a backslash or semicolon");
  if (head.includes("//") || head.includes("%2F")) return bad("the path holds an empty segment or an encoded slash");
  if (path.split(/\/|%2F/).some((segment) => segment === "." || segment === ".."))
    return bad("the path holds a dot segment");
  return { kind: "ok", path, query };
}

function normalise(
  raw: string,
): { readonly kind: "ok"; readonly path: string } | Extract<CanonicalTarget, { kind: "bad" }> {
  let why: string | undefined;
  const path = raw.replace(ENCODED, (_whole, hex: string | undefined) => {
    if (hex === undefined) {
      why = "the path holds a percent sign that encodes nothing";
      return "";
    }
    const code = Number.parseInt(hex, 16);
    if (code < 0x20 || code === 0x7f) why = "the path holds an encoded control character";
    const char = String.fromCharCode(code);
    return code < 0x80 && UNRESERVED.test(char) ? char : `%${hex.toUpperCase()}`;
  });
  // Overlong forms of a dot or slash are no UTF-8, so they end here too.
  if (why === undefined && decodeId(path) === undefined) why = "the path is not UTF-8";
  return why === undefined ? { kind: "ok", path } : { kind: "bad", why };
}

/** The id that a path's rest names, decoded once; `undefined` when it is not percent-encoded UTF-8. */
export function decodeId(rest: string): string | undefined {
  try {
    return decodeURIComponent(rest);
  } catch {
    return undefined;
  }
}
