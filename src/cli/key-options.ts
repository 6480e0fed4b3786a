import { newKeyRequest } from "../contract/admin-keys.ts";
import type { NewKeyRequest } from "../contract/admin-keys.ts";
import { splitList, usageError } from "./args.ts";

/** What a new key may be given, the same for a key of the file and one of the store. */
export const KEY_OPTIONS = {
  id: { type: "string" },
  role: { type: "string" },
  classes: { type: "string" },
  models: { type: "string" },
  weight: { type: "string" },
  expires: { type: "string" },
  "allow-external": { type: "boolean", default: false },
} as const;

export const KEY_OPTIONS_HELP = `  --id ID                 name of the key in audit, metrics and limits (needed)
  --role ROLE             client (default), operator, admin, approver, agent, gateway or metrics
  --classes A,B           classes the key may ask for, the default first (default interactive)
  --models A,B            served names the key may use, * and ? as wildcards (default all)
  --weight N              share inside a class (default 1)
  --expires TIME          such as 2027-01-31T12:00:00Z (default never)
  --allow-external        the key's data may leave the house
`;

export interface KeyFlags {
  readonly id?: string | undefined;
  readonly role?: string | undefined;
  readonly classes?: string | undefined;
  readonly models?: string | undefined;
  readonly weight?: string | undefined;
  readonly expires?: string | undefined;
  readonly "allow-external": boolean;
}

/** Only what was given, in the words of the file, and checked. Throws USAGE. */
export function readKeyFlags(flags: KeyFlags): {
  readonly given: Readonly<Record<string, unknown>>;
  readonly settings: NewKeyRequest;
} {
  if (flags.id === undefined) throw usageError("--id is missing");
  const given: Record<string, unknown> = { id: flags.id };
  if (flags.role !== undefined) given["role"] = flags.role;
  if (flags.classes !== undefined) given["classes"] = splitList("classes", flags.classes);
  if (flags.models !== undefined) given["models"] = splitList("models", flags.models);
  if (flags.weight !== undefined) given["weight"] = Number(flags.weight);
  if (flags.expires !== undefined) given["expires"] = flags.expires;
  if (flags["allow-external"]) given["allow_external"] = true;
  const parsed = newKeyRequest.safeParse(given);
  if (parsed.success) return { given, settings: parsed.data };
  const [issue] = parsed.error.issues;
  throw usageError(`--${String(issue?.path[0] ?? "id")}: ${issue?.message ?? "can't be read"}`);
}
