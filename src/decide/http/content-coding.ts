/** Codings that can be undone here. */
export type ContentCoding = "gzip" | "deflate" | "br" | "zstd";

const CODINGS: ReadonlyMap<string, ContentCoding> = new Map([
  ["gzip", "gzip"],
  ["x-gzip", "gzip"],
  ["deflate", "deflate"],
  ["br", "br"],
  ["zstd", "zstd"],
]);

/**
 * What has to be undone before a client can read a body: the coding that an engine put on it, unless the client offered it.
 * `undefined` also for what can't be undone: an unknown coding, or several on top of each other. `accept`: the client's
 * `Accept-Encoding`; a client without it has not said that it can undo any.
 */
export function codingToUndo(contentEncoding: string, accept: string | undefined): ContentCoding | undefined {
  const coding = CODINGS.get(contentEncoding.trim().toLowerCase());
  return coding !== undefined && !offers(accept ?? "", coding) ? coding : undefined;
}

function offers(accept: string, coding: ContentCoding): boolean {
  let any = false;
  for (const part of accept.toLowerCase().split(",")) {
    const [name = "", ...parameters] = part.split(";").map((piece) => piece.trim());
    const taken = !parameters.some((parameter) => /^q=0(?:\.0*)?$/.test(parameter));
    if (CODINGS.get(name) === coding) return taken;
    if (name === "*") any = taken;
  }
  return any;
}
