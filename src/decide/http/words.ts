const WORDS_CHARS_MAX = 300;

/** What another service says in words, fit to be stored and shown; `otherwise` where it says none. */
export function words(value: unknown, otherwise: string): string {
  if (typeof value !== "string" || value.trim() === "") return otherwise;
  // Control characters would write into a terminal.
  return value
    .replace(/\p{C}+/gu, " ")
    .trim()
    .slice(0, WORDS_CHARS_MAX);
}
