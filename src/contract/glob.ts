/**
 * Names against patterns: `*` stands for any run of characters, `?` for one, everything else for itself, case included.
 * Never by RegExp: a pattern such as `*a*a*a*b` would backtrack for ever there. Time is at most pattern × name per
 * pattern, since only the latest `*` is ever tried again.
 */
function matches(pattern: string, name: string): boolean {
  let p = 0;
  let n = 0;
  let star = -1;
  let resume = 0;
  while (n < name.length) {
    const symbol = pattern[p];
    if (symbol === "*") {
      star = p++;
      resume = n;
    } else if (symbol !== undefined && (symbol === "?" || symbol === name[n])) {
      p += 1;
      n += 1;
    } else if (star >= 0) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (pattern[p] === "*") p += 1;
  return p === pattern.length;
}

/** Whether any of the patterns matches; no patterns match nothing. Plain names are found by one lookup. */
export function compileGlobs(patterns: readonly string[]): (name: string) => boolean {
  const plain = new Set(patterns.filter((pattern) => !/[*?]/.test(pattern)));
  const globs = patterns.filter((pattern) => /[*?]/.test(pattern));
  if (globs.includes("*")) return () => true;
  return (name) => plain.has(name) || globs.some((pattern) => matches(pattern, name));
}
