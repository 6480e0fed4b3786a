/**
 * When to dial a control plane again. After a connection that held, one quick try: most ends are a restart of one process. Then
 * anywhere within a time that doubles with each try, up to half a minute: back soon after a short absence, and a whole fleet that
 * lost its control plane for longer does not come back in one moment.
 */
export const FIRST_MS_MAX = 1_000;
export const JITTER_MS_MAX = 30_000;
/** A connection that ended sooner did not hold: a server that accepts and drops at once would be dialled for ever. */
export const HELD_MS_MIN = 5_000;
/** A refused credential will be refused again; it is tried, since a control plane may have lost and regained its store. */
export const REFUSED_MS_MIN = 15_000;

export type LinkEnd = { readonly kind: "ended"; readonly heldMs: number } | { readonly kind: "refused" };

/** Ends without a connection that held, up to and with this one. */
export const failuresAfter = (end: LinkEnd, before: number): number =>
  end.kind === "ended" && end.heldMs >= HELD_MS_MIN ? 0 : before + 1;

/** `failures` as of `failuresAfter`; `chance` is uniform in [0, 1). Returns ms. */
export function redialDelay(end: LinkEnd, failures: number, chance: number): number {
  if (end.kind === "refused") return REFUSED_MS_MIN + chance * JITTER_MS_MAX;
  return chance * Math.min(JITTER_MS_MAX, FIRST_MS_MAX * 2 ** failures);
}
