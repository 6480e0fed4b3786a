/** Finds the one key that a request presents. Nothing here says whether it is valid. */
export type Credential =
  | { readonly kind: "key"; readonly value: string }
  | { readonly kind: "none" }
  /** The request is refused with 400 and no key of it is looked at. `why` holds nothing of a key. */
  | { readonly kind: "bad"; readonly why: string };

const NONE: Credential = { kind: "none" };
const KEY_IN_QUERY: Credential = {
  kind: "bad",
  why: "a key in the query string is refused: send it as `Authorization: Bearer`",
};
const BEARER = /^bearer[ \t]+/i;

/**
 * `rawHeaders` is flat: name, value, name, value. `target` is the request target with its query: a key there is refused,
 * since targets are written to logs by every proxy on the way.
 */
export function readCredential(
  rawHeaders: readonly string[],
  target: string,
  /** A further header that the route takes a key from, in lower case. */
  routeHeader?: string,
): Credential {
  if (target.includes("?") && hasKeyInQuery(target)) return KEY_IN_QUERY;
  let authorization: string | undefined;
  let xApiKey: string | undefined;
  let apiKey: string | undefined;
  let routeKey: string | undefined;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? "";
    // Cheap first: few headers have these lengths.
    if (name.length !== 13 && name.length !== 9 && name.length !== 7 && name.length !== routeHeader?.length) continue;
    const value = (rawHeaders[at + 1] ?? "").trim();
    switch (name.toLowerCase()) {
      case routeHeader:
        if (routeKey !== undefined) return duplicate(name.toLowerCase());
        routeKey = value;
        break;
      case "authorization":
        if (authorization !== undefined) return duplicate("authorization");
        authorization = value;
        break;
      case "x-api-key":
        if (xApiKey !== undefined) return duplicate("x-api-key");
        xApiKey = value;
        break;
      case "api-key":
        if (apiKey !== undefined) return duplicate("api-key");
        apiKey = value;
        break;
      default:
    }
  }
  const bearer =
    authorization !== undefined && BEARER.test(authorization) ? authorization.replace(BEARER, "") : undefined;
  let found: string | undefined;
  for (const key of [bearer, xApiKey, apiKey, routeKey]) {
    if (key === undefined || key === "") continue;
    if (found !== undefined && found !== key) return { kind: "bad", why: "two different keys were sent: send one" };
    found = key;
  }
  if (found === undefined) return NONE;
  // Under whatever name: the target goes to logs and on to engines.
  if (target.includes("?") && holdsKey(target, found)) return KEY_IN_QUERY;
  return { kind: "key", value: found };
}

const holdsKey = (target: string, key: string): boolean =>
  target.includes(key) || decodeName(target).includes(key.toLowerCase());

const duplicate = (name: string): Credential => ({ kind: "bad", why: `the header \`${name}\` was sent twice` });

const KEY_PARAMETERS: ReadonlySet<string> = new Set([
  "key",
  "authorization",
  "bearer",
  "api_key",
  "api-key",
  "apikey",
  "x-api-key",
  "access_token",
  "token",
  "subscription-key",
]);

function hasKeyInQuery(target: string): boolean {
  const query = target.slice(target.indexOf("?") + 1).split("#", 1)[0] ?? "";
  // `;` separates parameters for some servers, so a key behind one is a key in the query as well.
  return query.split(/[&;]/).some((part) => KEY_PARAMETERS.has(decodeName(part.split("=", 1)[0] ?? "")));
}

function decodeName(name: string): string {
  try {
    return decodeURIComponent(name.replaceAll("+", " ")).trim().toLowerCase();
  } catch {
    return name.toLowerCase();
  }
}
