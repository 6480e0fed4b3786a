import type { z } from "zod";
import { describeType, fieldAt, keysAt, placesOfKeys } from "../contract/schema-fields.ts";
import type { FieldPath } from "../contract/schema-fields.ts";
import { escapeControls } from "../kernel/log.ts";
import { nearest } from "./nearest.ts";

export interface DescribedIssue {
  readonly path: FieldPath;
  /** Whether the place is the key rather than the value. */
  readonly at: "key" | "value";
  readonly found: string;
  readonly message: string;
  readonly hint?: string;
}

export function valueAt(raw: unknown, path: FieldPath): unknown {
  let value = raw;
  for (const step of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<string | number, unknown>)[step];
  }
  return value;
}

/** Keys whose text may be, or hold, a secret that was put there rightly or by mistake. */
const NEVER_SHOWN: ReadonlySet<string | number> = new Set([
  "hash",
  "key_env",
  "signing_key_envs",
  "redis_url",
  "cache_redis_url",
  "database_url",
  "url",
  "dcgm_url",
  "base_url",
  "endpoint",
  "env",
]);
/**
 * Texts that may hold a secret wherever they were put: our own keys, tokens and credentials, and those of well-known places, by their
 * beginnings; URLs with a user or a query.
 */
const SECRET_LIKE =
  /^ym[a-z]?_|:\/\/[^/]*@|\?.*=|^(?:sk|hf|gh[a-z]|xox[a-z]|glpat|AKIA|eyJ|Basic|Bearer)[-_ A-Z0-9a-z]/;
const SHOWN_LENGTH_MAX = 40;

export function describeFound(value: unknown, path: FieldPath, fromEnv: boolean): string {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "a mapping";
  if (fromEnv) return `a ${typeof value === "string" ? "text" : typeof value} from the environment`;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "string") return `a ${typeof value}`;
  if (SECRET_LIKE.test(value) || path.some((step) => NEVER_SHOWN.has(step)))
    return `a text of ${value.length} characters`;
  const shown = value.length > SHOWN_LENGTH_MAX ? `${value.slice(0, SHOWN_LENGTH_MAX)}…` : value;
  return `"${escapeControls(shown)}"`;
}

/** Of one mapping; a file with more is not a file of ours. */
const UNKNOWN_KEYS_MAX = 100;

/** One zod issue in the words of the file. An issue about unknown keys becomes one per key. */
export function describeIssue(
  issue: z.core.$ZodIssue,
  schema: z.core.$ZodType,
  raw: unknown,
  fromEnv: boolean,
): DescribedIssue[] {
  const path = issue.path.map((step) => (typeof step === "symbol" ? String(step) : step));
  if (issue.code === "unrecognized_keys") {
    const places = placesOfKeys(schema);
    const here = keysAt(schema, path);
    return issue.keys.slice(0, UNKNOWN_KEYS_MAX).map((key) => describeUnknownKey(key, path, here, places));
  }
  const value = valueAt(raw, path);
  const described = {
    path,
    at: "value",
    found: describeFound(value, path, fromEnv),
    message: messageFor(issue, value, fieldAt(schema, path)),
  } as const;
  const hint = hintFor(issue, value, fromEnv);
  return [hint === undefined ? described : { ...described, hint }];
}

function messageFor(issue: z.core.$ZodIssue, value: unknown, field: z.core.$ZodType | undefined): string {
  const allowed = field === undefined ? "another value" : describeType(field);
  if (value === undefined) return `is missing: ${allowed}`;
  if (value === null) return `is empty; allowed: ${allowed}`;
  switch (issue.code) {
    case "invalid_type":
    case "invalid_value":
    case "invalid_union":
      return `allowed: ${allowed}`;
    case "too_big":
    case "too_small":
      if (issue.origin === "string")
        return `must have ${issue.code === "too_big" ? "at most" : "at least"} ${issue.code === "too_big" ? issue.maximum : issue.minimum} characters`;
      if (issue.origin === "array")
        return `must have ${issue.code === "too_big" ? "at most" : "at least"} ${issue.code === "too_big" ? issue.maximum : issue.minimum} entries`;
      return `allowed: ${allowed}`;
    case "invalid_format":
      if (issue.format === "datetime") return "use a time such as 2027-01-31T12:00:00Z";
      return issue.message.startsWith("Invalid") ? "is not in the form that is allowed here" : issue.message;
    case "invalid_key":
      return `is no name that is allowed here: ${issue.issues[0]?.message ?? issue.message}`;
    default:
      return issue.message;
  }
}

const YAML_1_1_TRUTH = /^(?:yes|no|on|off|y|n)$/i;

function hintFor(issue: z.core.$ZodIssue, value: unknown, fromEnv: boolean): string | undefined {
  if (issue.code === "invalid_value") {
    const near = typeof value === "string" && !fromEnv ? nearest(value, issue.values.map(String)) : undefined;
    return near === undefined ? undefined : `did you mean \`${near}\`?`;
  }
  if (issue.code !== "invalid_type") return undefined;
  const wanted = issue.expected;
  if (typeof value === "string") {
    if (wanted === "boolean" && YAML_1_1_TRUTH.test(value)) return "YAML 1.2 knows `true` and `false` only";
    if ((wanted === "int" || wanted === "number") && /^[-+]?[0-9.]+$/.test(value))
      return "remove the quotes: a number, not a text";
    if ((wanted === "int" || wanted === "number") && /^[0-9][0-9_]*(?:[a-zA-Z]+)?$/.test(value))
      return "write the number alone; its unit is part of the key's name";
    if (wanted === "array") return "put it in a list: [ … ], or one line each with a dash";
  }
  if (value === null && (wanted === "object" || wanted === "array"))
    return "what belongs to it must be indented below it";
  if (wanted === "string" && (typeof value === "number" || typeof value === "boolean"))
    return "put it in quotes to make it a text";
  return undefined;
}

function describeUnknownKey(
  key: string,
  parent: FieldPath,
  here: readonly string[],
  places: ReadonlyMap<string, string>,
): DescribedIssue {
  const near = nearest(key, here);
  const elsewhere = near === undefined ? places.get(key) : undefined;
  const hint =
    near !== undefined
      ? `did you mean \`${near}\`?`
      : elsewhere !== undefined
        ? `there is a key \`${elsewhere}\`; check the indentation`
        : `known here: ${here.join(", ")}`;
  return {
    path: [...parent, escapeControls(key.slice(0, SHOWN_LENGTH_MAX))],
    at: "key",
    found: "",
    message: "is not a known key",
    hint,
  };
}
