/** A form as far as an engine looks at it: text fields, and the size of files. */
export interface MultipartForm {
  readonly fields: ReadonlyMap<string, string>;
  readonly files: ReadonlyMap<string, number>;
}

/** Undefined when the body is not the form that its content type promises. */
export function parseMultipart(contentType: string, body: Buffer): MultipartForm | undefined {
  const boundary = /boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(contentType);
  const mark = boundary?.[1] ?? boundary?.[2];
  if (mark === undefined) return undefined;
  const delimiter = Buffer.from(`--${mark}`);
  const fields = new Map<string, string>();
  const files = new Map<string, number>();
  let at = body.indexOf(delimiter);
  if (at < 0) return undefined;
  for (;;) {
    at += delimiter.length;
    if (body.subarray(at, at + 2).toString("latin1") === "--") return { fields, files };
    const next = body.indexOf(delimiter, at);
    const headEnd = body.indexOf("\r\n\r\n", at);
    if (next < 0 || headEnd < 0 || headEnd > next) return undefined;
    const head = body.subarray(at, headEnd).toString("utf8");
    const content = body.subarray(headEnd + 4, next - 2);
    const name = /[; ]name="([^"]*)"/i.exec(head)?.[1];
    if (name !== undefined && /filename\*?=/i.test(head)) files.set(name, content.length);
    else if (name !== undefined) fields.set(name, content.toString("utf8"));
    at = next;
  }
}
