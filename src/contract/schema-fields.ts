import { z } from "zod";

/** Reading a schema as data: for hints, for the reference page and for masking. Knows the kinds of schema that the file uses. */

export type FieldPath = readonly (string | number)[];

export interface Field {
  /** "upstreams[].queue.max": a list's items have "[]". */
  readonly path: string;
  readonly key: string;
  /** What the file may hold there, in words. */
  readonly type: string;
  /** Undefined where there is none. */
  readonly default: unknown;
  readonly required: boolean;
  readonly description: string;
}

/** The schema below defaults and `optional`. */
export function unwrap(schema: z.core.$ZodType): z.core.$ZodType {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional)
    return unwrap(schema.def.innerType);
  return schema;
}

export function fieldAt(schema: z.core.$ZodType, path: FieldPath): z.core.$ZodType | undefined {
  let current: z.core.$ZodType | undefined = unwrap(schema);
  for (const step of path) {
    if (current instanceof z.ZodArray && typeof step === "number") current = unwrap(current.def.element);
    else if (current instanceof z.ZodRecord) current = unwrap(current.def.valueType);
    else if (current instanceof z.ZodObject && Object.hasOwn(current.def.shape, step)) {
      const next: z.core.$ZodType | undefined = current.def.shape[step];
      current = next === undefined ? undefined : unwrap(next);
    } else return undefined;
  }
  return current;
}

export function keysAt(schema: z.core.$ZodType, path: FieldPath): string[] {
  const field = fieldAt(schema, path);
  return field instanceof z.ZodObject ? Object.keys(field.def.shape) : [];
}

/** Each key's name and the first path that ends in it. */
export function placesOfKeys(
  schema: z.core.$ZodType,
  parent = "",
  places = new Map<string, string>(),
): ReadonlyMap<string, string> {
  const inner = unwrap(schema);
  if (inner instanceof z.ZodArray) return placesOfKeys(inner.def.element, `${parent}[]`, places);
  if (!(inner instanceof z.ZodObject)) return places;
  for (const [key, field] of Object.entries(inner.def.shape)) {
    const path = parent === "" ? key : `${parent}.${key}`;
    if (!places.has(key)) places.set(key, path);
    placesOfKeys(field, path, places);
  }
  return places;
}

/** Every key of the schema, parents before their children, in the order of the schema. */
export function listFields(schema: z.core.$ZodType, parent = ""): Field[] {
  const inner = unwrap(schema);
  if (inner instanceof z.ZodArray) return listFields(inner.def.element, `${parent}[]`);
  if (!(inner instanceof z.ZodObject)) return [];
  return Object.entries(inner.def.shape).flatMap(([key, field]) => {
    const path = parent === "" ? key : `${parent}.${key}`;
    const own: Field = {
      path,
      key,
      type: describeType(unwrap(field)),
      default: defaultOf(field),
      required: !(field instanceof z.ZodDefault || field instanceof z.ZodPrefault || field instanceof z.ZodOptional),
      description: descriptionOf(field),
    };
    return [own, ...listFields(field, path)];
  });
}

function descriptionOf(schema: z.core.$ZodType): string {
  const own = z.globalRegistry.get(schema)?.description;
  if (own !== undefined) return own;
  return schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault || schema instanceof z.ZodOptional
    ? descriptionOf(schema.def.innerType)
    : "";
}

function defaultOf(schema: z.core.$ZodType): unknown {
  if (schema instanceof z.ZodDefault) return schema.def.defaultValue;
  return schema instanceof z.ZodOptional ? defaultOf(schema.def.innerType) : undefined;
}

export function describeType(schema: z.core.$ZodType): string {
  if (schema instanceof z.ZodEnum)
    return `one of ${Object.values(schema.def.entries)
      .map((value) => `\`${value}\``)
      .join(", ")}`;
  if (schema instanceof z.ZodBoolean) return "`true` or `false`";
  if (schema instanceof z.ZodNumber) return describeNumber(schema);
  if (schema instanceof z.ZodArray) {
    const item = unwrap(schema.def.element);
    return item instanceof z.ZodObject ? "list of mappings" : `list: ${describeType(item)}`;
  }
  if (schema instanceof z.ZodObject) return "mapping";
  if (schema instanceof z.ZodRecord) return `mapping of names to values: ${describeType(unwrap(schema.def.valueType))}`;
  if (schema instanceof z.ZodUnion) return schema.def.options.map(describeType).join(", or ");
  if (schema instanceof z.ZodNull) return "empty";
  return "text";
}

function describeNumber(schema: z.ZodNumber): string {
  const kind = schema.isInt ? "whole number" : "number";
  const { minimum, exclusiveMinimum, maximum } = z.toJSONSchema(schema);
  const low =
    minimum !== undefined ? `from ${minimum}` : exclusiveMinimum !== undefined ? `above ${exclusiveMinimum}` : "";
  const high = maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER ? `up to ${maximum}` : "";
  return [kind, low, high].filter((part) => part !== "").join(" ");
}
