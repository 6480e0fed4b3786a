const PARAMETER =
  /^[ \t]*;[ \t]*(?:([A-Za-z0-9!#$%&'*+.^_`|~-]+)=(?:"((?:[^"\\]|\\.)*)"|([A-Za-z0-9!#$%&'*+.^_`|~-]+)))?/;

/** `quoted` tells whether the value stood in quotes; escapes in it are kept as they are. */
export interface HeaderParameter {
  readonly name: string;
  readonly value: string;
  readonly quoted: boolean;
}

/** The parameters behind a header's first value (`; name=value; name="value"`), names in lower case. `undefined` when that can't be read. */
export function parseParameters(text: string): HeaderParameter[] | undefined {
  const found: HeaderParameter[] = [];
  let rest = text.trimEnd();
  while (rest !== "") {
    const match = PARAMETER.exec(rest);
    if (match === null) return undefined;
    const [all, name, quoted, token] = match;
    if (name !== undefined)
      found.push({ name: name.toLowerCase(), value: quoted ?? token ?? "", quoted: quoted !== undefined });
    rest = rest.slice(all.length);
  }
  return found;
}
