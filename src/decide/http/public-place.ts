/** Where an endpoint stands for the gateway, and under which path its callers reach it. */
export interface PublicPlace {
  /** Scheme, host and port of the endpoint. */
  readonly origin: string;
  /** What the gateway puts before a caller's path there: empty, or with a slash at its begin and none at its end. */
  readonly basePath: string;
  /** What a caller puts before it here, such as `/upstreams/ocr`. */
  readonly prefix: string;
}

const OF_A_PLACE = new Set(["location", "content-location"]);

/**
 * The headers of an answer with the places on the engine's own origin told as callers reach them. One there that no caller
 * can reach, because it lies outside the base path, is left out. Another origin, and a path relative to the request's own,
 * stay as they are.
 */
export function withPublicPlaces(headers: readonly string[], at: PublicPlace): string[] {
  const told: string[] = [];
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i] ?? "";
    const value = headers[i + 1] ?? "";
    const place = OF_A_PLACE.has(name.toLowerCase()) ? publicPlace(value, at) : value;
    if (place !== undefined) told.push(name, place);
  }
  return told;
}

function publicPlace(reference: string, { origin, basePath, prefix }: PublicPlace): string | undefined {
  const own = new URL(origin);
  const place = URL.parse(reference) ?? (/^\s*[/\\]/.test(reference) ? URL.parse(reference, own.origin) : null);
  if (place === null || place.origin !== own.origin) return reference;
  const { pathname, search, hash } = place;
  if (pathname !== basePath && !pathname.startsWith(`${basePath}/`)) return undefined;
  return `${prefix}${pathname.slice(basePath.length)}${search}${hash}`;
}
