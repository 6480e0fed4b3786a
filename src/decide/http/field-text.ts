/**
 * Whether a header's value can be sent: visible text, blanks and bytes above ASCII, no control that would end its line. A loop,
 * because values are short and asking a regular expression costs more than looking at them.
 */
export function isFieldText(value: string): boolean {
  for (let i = 0; i < value.length; i++) {
    const code = value.charCodeAt(i);
    if ((code < 0x20 && code !== 0x09) || code === 0x7f || code > 0xff) return false;
  }
  return true;
}

/** As `isFieldText`, without the bytes above ASCII, which are text of an unknown encoding in logs and at the engine. */
export function isAsciiFieldText(value: string): boolean {
  for (let i = 0; i < value.length; i++) {
    const code = value.charCodeAt(i);
    if ((code < 0x20 && code !== 0x09) || code > 0x7e) return false;
  }
  return true;
}
