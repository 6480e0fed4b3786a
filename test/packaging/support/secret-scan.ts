/** What a secret looks like, told from what is said about secrets by its length and alphabet. */
const SHAPES: Readonly<Record<string, RegExp>> = {
  "private key": /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s*[A-Za-z0-9+/]{20}/,
  "private key's first line": /^-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----$/,
  "access key id of a cloud": /\bA(?:KIA|SIA)[A-Z2-7]{16}\b/,
  "token of a code host": /\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{60,}|glpat-[\w-]{20,})/,
  "token of a chat service": /\bxox[abprs]-[\w-]{20,}/,
  "key of a model service": /\b(?:sk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}|AIza[\w-]{35}|hf_[A-Za-z]{34,})/,
  "token of a package registry": /\b(?:npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,})/,
  "key of this product": /\bym[a-z]*_[A-Za-z0-9_-]{40,}/,
  "JSON web token": /\beyJ[\w-]{15,}\.eyJ[\w-]{15,}\.[\w-]{20,}/,
  "password in a URL": /\b[a-z][a-z0-9+]{2,}:\/\/[^\s:/@"'`$<>{}]*:[A-Za-z0-9+_-]{16,}@/,
};
/** Words that say of themselves that they open nothing. */
const MADE_UP = /CANARY|EXAMPLE|example|0123456789|abcdef|secret|fake|test|xxxx|(.)\1{7}/;

/** The kinds of secrets that a line seems to hold. */
export function secretsIn(line: string): string[] {
  return Object.entries(SHAPES).flatMap(([kind, shape]) => {
    const found = shape.exec(line)?.[0];
    return found === undefined || MADE_UP.test(found) ? [] : [kind];
  });
}
