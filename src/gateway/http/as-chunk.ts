/** A copy of the payload as one chunk of a chunked body. */
export function asChunk(payload: Buffer): Buffer {
  const size = payload.length.toString(16);
  const framed = Buffer.allocUnsafe(size.length + 4 + payload.length);
  framed.write(`${size}\r\n`, 0, "latin1");
  payload.copy(framed, size.length + 2);
  framed.write("\r\n", size.length + 2 + payload.length, "latin1");
  return framed;
}
