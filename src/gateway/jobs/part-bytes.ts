/** A part is stored as its path, an end of line, and its body; an empty path is the job's own. */
export const packPart = (path: string | undefined, body: Buffer): Buffer =>
  Buffer.concat([Buffer.from(`${path ?? ""}\n`), body]);

export function readPart(packed: Buffer | undefined, path: string): { readonly path: string; readonly body: Buffer } {
  const bytes = packed ?? Buffer.from("\n");
  const end = bytes.indexOf(0x0a);
  const own = bytes.toString("utf8", 0, end);
  return { path: own === "" ? path : own, body: bytes.subarray(end + 1) };
}
