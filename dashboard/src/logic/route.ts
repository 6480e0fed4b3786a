/** Where the reader is: in the address behind `#/`, so that a place can be sent to somebody and the back button works. */
export const VIEWS = ["fleet", "models", "queues", "jobs", "overflow", "events", "usage", "try"] as const;
export type View = (typeof VIEWS)[number];

export interface Place {
  readonly view: View;
  /** What is looked at there: a node, a model, a job. Null: the list. */
  readonly item: string | null;
}

/** An approver looks after money alone: what else there is, the server tells nothing of. */
export const viewsOf = (role: string): readonly View[] => (role === "approver" ? ["overflow"] : VIEWS);

const isView = (text: string): text is View => (VIEWS as readonly string[]).includes(text);

export function readPlace(hash: string): Place {
  const [view = "", ...rest] = hash.replace(/^#?\/?/, "").split("/");
  if (!isView(view)) return { view: "fleet", item: null };
  const item = rest.join("/");
  if (item === "") return { view, item: null };
  try {
    return { view, item: decodeURIComponent(item) };
  } catch {
    return { view, item: null };
  }
}

export const placeHref = (view: View, item: string | null = null): string =>
  item === null ? `#/${view}` : `#/${view}/${encodeURIComponent(item)}`;

/** The secret of a one-time link, which is taken out of the address at once. */
export const readOnce = (hash: string): string | null => /^#once=([A-Za-z0-9_-]{16,256})$/.exec(hash)?.[1] ?? null;
