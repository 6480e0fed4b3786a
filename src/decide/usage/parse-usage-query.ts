import {
  parseDay,
  USAGE_DAY_HINT,
  USAGE_DAYS_MAX,
  USAGE_DAYS_SHOWN,
  USAGE_GROUPS,
  USAGE_LIMIT_DEFAULT,
  USAGE_LIMIT_MAX,
  USAGE_PARAMS,
  type UsageGroup,
} from "../../contract/usage-view.ts";
import { dayOf } from "../limits/windows.ts";
import type { UsagePlace } from "./sum-usage.ts";

export interface UsageQuery {
  readonly fromDay: number;
  /** Included. */
  readonly toDay: number;
  /** Null: of all keys. */
  readonly keyId: string | null;
  /** Null: of all models. */
  readonly model: string | null;
  readonly group: readonly UsageGroup[];
  readonly format: "json" | "csv";
  readonly limit: number;
  /** Null: from the begin. */
  readonly after: UsagePlace | null;
}

export type UsageQueryOutcome =
  | { readonly kind: "ok"; readonly query: UsageQuery }
  /** For the client: BAD_REQUEST. */
  | { readonly kind: "bad"; readonly why: string };

type Given = Partial<Record<(typeof USAGE_PARAMS)[number], string>>;

const TEXT_CHARS_MAX = 1_024;

/** Reads the parameters of `GET /usage`. `now` in epoch milliseconds is what days are shown up to. */
export function parseUsageQuery(params: URLSearchParams, now: number): UsageQueryOutcome {
  const given: Given = {};
  for (const [name, value] of params) {
    const known = USAGE_PARAMS.find((param) => param === name);
    if (known === undefined) return bad(`unknown parameter; usage takes ${USAGE_PARAMS.join(", ")}`);
    if (given[known] !== undefined) return bad(`${known} is given twice`);
    if (value === "" || value.length > TEXT_CHARS_MAX)
      return bad(`${known} must have 1 to ${TEXT_CHARS_MAX} characters`);
    given[known] = value;
  }
  const toDay = given.to === undefined ? dayOf(now) : parseDay(given.to);
  if (toDay === undefined) return bad(`to must be ${USAGE_DAY_HINT}`);
  const fromDay = given.from === undefined ? toDay - USAGE_DAYS_SHOWN + 1 : parseDay(given.from);
  if (fromDay === undefined) return bad(`from must be ${USAGE_DAY_HINT}`);
  if (fromDay > toDay) return bad("from is later than to");
  if (toDay - fromDay >= USAGE_DAYS_MAX) return bad(`from and to may span ${USAGE_DAYS_MAX} days`);
  const group = given.group === undefined ? USAGE_GROUPS : parseGroup(given.group);
  if (group === undefined) return bad(`group must be one or more of ${USAGE_GROUPS.join(", ")}, parted by commas`);
  const { format = "json" } = given;
  if (format !== "json" && format !== "csv") return bad("format must be json or csv");
  const limit = given.limit === undefined ? USAGE_LIMIT_DEFAULT : Number(given.limit);
  if (!/^\d{1,6}$/.test(given.limit ?? "1") || limit < 1 || limit > USAGE_LIMIT_MAX)
    return bad(`limit must be 1 to ${USAGE_LIMIT_MAX}`);
  const after = given.cursor === undefined ? null : parseCursor(given.cursor);
  if (after === undefined) return bad("cursor is none that this route gave");
  const { key_id: keyId = null, model = null } = given;
  return { kind: "ok", query: { fromDay, toDay, keyId, model, group, format, limit, after } };
}

const bad = (why: string): UsageQueryOutcome => ({ kind: "bad", why });

/** In the one order that rows have. */
function parseGroup(text: string): UsageGroup[] | undefined {
  const names = text.split(",");
  const known = USAGE_GROUPS.filter((name) => names.includes(name));
  return known.length === names.length ? known : undefined;
}

export const renderCursor = (place: UsagePlace): string => Buffer.from(JSON.stringify(place)).toString("base64url");

function parseCursor(text: string): UsagePlace | undefined {
  try {
    const place: unknown = JSON.parse(Buffer.from(text, "base64url").toString("utf8"));
    if (!Array.isArray(place) || place.length !== USAGE_GROUPS.length) return undefined;
    const [day, key, model]: readonly unknown[] = place;
    if (typeof day !== "string" || typeof key !== "string" || typeof model !== "string") return undefined;
    return [day, key, model];
  } catch {
    return undefined;
  }
}
