export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
export type JsonObject = { readonly [key: string]: Json };

export const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export const isArray = (value: Json | undefined): value is readonly Json[] => Array.isArray(value);

export const textOf = (value: Json | undefined): string | undefined => (typeof value === "string" ? value : undefined);

/** A whole number inside the bounds, or undefined when the value is no number. */
export function countOf(value: Json | undefined, min: number, max: number): number | undefined {
  return typeof value === "number" ? Math.min(max, Math.max(min, Math.floor(value))) : undefined;
}

export const numberOf = (value: Json | undefined): number | undefined =>
  typeof value === "number" ? value : undefined;
