/** The value that a JSON pointer (RFC 6901) names; undefined where there is none. */
export function valueAt(document: unknown, pointer: string): unknown {
  if (pointer === "") return document;
  let current = document;
  for (const step of pointer.slice(1).split("/")) {
    const name = step.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof current !== "object" || current === null || !Object.hasOwn(current, name)) return undefined;
    // An array's own `length` is no member of the document.
    if (Array.isArray(current) && !/^(?:0|[1-9]\d*)$/.test(name)) return undefined;
    current = (current as Record<string, unknown>)[name];
  }
  return current;
}
