import type { Endpoint } from "./endpoint.ts";

/** Whether any engine lists the model: only then can the others be known not to have it (an alias is listed by none). */
export const isListed = (endpoints: readonly Endpoint[], model: string): boolean =>
  endpoints.some((endpoint) => endpoint.models?.has(model) === true);

interface GroupSeeker {
  readonly model: string;
  readonly tried: ReadonlySet<string>;
}

const NONE: ReadonlySet<string> = new Set();
/** What a group's name begins with: a model may have any name, so a mark inside would not do. */
const MODEL = "m";
const TRIED = "t";

/**
 * Requests that may go to the same endpoints: the model where some engines are known not to have it, else all are alike; and beside
 * that the endpoints that they have been on in vain.
 */
export function groupOf(endpoints: readonly Endpoint[], { model, tried }: GroupSeeker): string {
  const lacking = endpoints.some(({ models }) => models !== null && !models.has(model)) && isListed(endpoints, model);
  const named = lacking ? model : null;
  const closed = tried.size === 0 ? [] : endpoints.filter(({ id }) => tried.has(id)).map(({ id }) => id);
  if (closed.length > 0) return TRIED + JSON.stringify([named, ...closed]);
  return named === null ? "" : MODEL + named;
}

/** `model` is null where any will do. */
export function readGroup(group: string): { readonly model: string | null; readonly tried: ReadonlySet<string> } {
  if (group === "") return { model: null, tried: NONE };
  if (group.startsWith(MODEL)) return { model: group.slice(MODEL.length), tried: NONE };
  const [model, ...tried] = JSON.parse(group.slice(TRIED.length)) as [string | null, ...string[]];
  return { model, tried: new Set(tried) };
}

/** The same for many requests at one moment. */
export function groupsNow(endpoints: readonly Endpoint[]): (seeker: GroupSeeker | undefined) => string {
  const known = new Map<string, string>();
  return (seeker) => {
    if (seeker === undefined) return "";
    const { model, tried } = seeker;
    if (tried.size > 0) return groupOf(endpoints, seeker);
    const group = known.get(model) ?? groupOf(endpoints, seeker);
    known.set(model, group);
    return group;
  };
}
