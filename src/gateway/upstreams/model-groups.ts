import type { Endpoint } from "./endpoint.ts";

/** Whether any engine lists the model: only then can the others be known not to have it (an alias is listed by none). */
export const isListed = (endpoints: readonly Endpoint[], model: string): boolean =>
  endpoints.some((endpoint) => endpoint.models?.has(model) === true);

/** Requests that may go to the same endpoints: the model where some engines are known not to have it, else all are alike. */
export const groupOf = (endpoints: readonly Endpoint[], model: string): string =>
  endpoints.some(({ models }) => models !== null && !models.has(model)) && isListed(endpoints, model) ? model : "";

/** The same for many requests at one moment. */
export function groupsNow(endpoints: readonly Endpoint[]): (model: string) => string {
  const known = new Map<string, string>();
  return (model) => {
    const group = known.get(model) ?? groupOf(endpoints, model);
    known.set(model, group);
    return group;
  };
}
