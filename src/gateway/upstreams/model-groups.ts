import type { Endpoint } from "./endpoint.ts";

/** Whether any engine lists the model: only then can the others be known not to have it (an alias is listed by none). */
export const isListed = (endpoints: readonly Endpoint[], model: string): boolean =>
  endpoints.some((endpoint) => endpoint.models?.has(model) === true);

interface GroupSeeker {
  readonly model: string;
  readonly tried: ReadonlySet<string>;
}

/** No name of a model or an endpoint has it. */
const BETWEEN = "\u0000";
const NONE: ReadonlySet<string> = new Set();

/**
 * Requests that may go to the same endpoints: the model where some engines are known not to have it, else all are alike; and behind
 * that the endpoints that they have been on in vain.
 */
export function groupOf(endpoints: readonly Endpoint[], { model, tried }: GroupSeeker): string {
  const lacking = endpoints.some(({ models }) => models !== null && !models.has(model)) && isListed(endpoints, model);
  const group = lacking ? model : "";
  if (tried.size === 0) return group;
  const closed = endpoints.filter(({ id }) => tried.has(id)).map(({ id }) => id);
  return [group, ...closed].join(BETWEEN);
}

/** `model` is empty where any will do. */
export function readGroup(group: string): { readonly model: string; readonly tried: ReadonlySet<string> } {
  if (!group.includes(BETWEEN)) return { model: group, tried: NONE };
  const [model = "", ...tried] = group.split(BETWEEN);
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
