import { newKeyAsk, rotateKeyRequest } from "../../contract/admin-keys.ts";
import type { IssuedKey, KeyView, RevokedKey } from "../../contract/admin-keys.ts";
import type { ApiKey } from "../../contract/gateway-config.ts";
import { formatIsoTime } from "../../kernel/clock.ts";
import type { Clock, EpochMs } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { AcceptedKey, KeyRing } from "../../access/key-ring.ts";
import type { IssuedStoredKey, StoredKeys } from "./stored-keys.ts";

/**
 * What the routes below `/admin/keys` do. Each function looks whether it may be done, and says how. A change goes to the store first
 * and to the ring then, so that a key the caller was told about works, and a revoked one does not, when the answer leaves. Throws
 * YardmasterError: BAD_REQUEST, KEY_UNKNOWN, KEY_EXISTS, KEY_IN_FILE, KEY_STORE_UNAVAILABLE.
 */
export interface KeyAdmin {
  readonly ring: KeyRing;
  readonly stored: StoredKeys;
  readonly clock: Clock;
  /** Told of all keys of the store, at start and after each change. */
  readonly onStored?: ((keys: readonly ApiKey[]) => void) | undefined;
}

/** Reads the store into the ring; at start, and after each change. */
export function loadStoredKeys({ ring, stored, clock, onStored }: KeyAdmin): void {
  const keys = stored.list(clock.wall()).map(({ key }) => key);
  ring.replace("stored", keys);
  onStored?.(keys);
}

/** `GET /admin/keys`. */
export function listKeys({ ring, stored, clock }: KeyAdmin): { readonly keys: KeyView[] } {
  const createdAt = new Map(stored.list(clock.wall()).map((entry) => [entry.key.hash, entry.createdAt]));
  const keys = ring.list().map(({ key, lastUsedAt }) => viewKey(key, createdAt.get(key.hash) ?? null, lastUsedAt));
  return { keys: keys.toSorted((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0)) };
}

/** What a gateway says of itself alone. */
type Here<T> = Omit<T, "sharing">;

/** What may be done, with the id that it is done to. Whoever has its record does it. */
export interface KeyChange<T> {
  readonly id: string;
  readonly act: () => T;
}

/** `POST /admin/keys`: answered with 201. */
export function createKey(admin: KeyAdmin, body: unknown): KeyChange<Here<IssuedKey>> {
  const parsed = newKeyAsk.safeParse(body);
  if (!parsed.success) throw badRequest(parsed.error.issues);
  const { hash, ...settings } = parsed.data;
  const { id } = settings;
  const given = givenHash(admin, hash);
  const exists = (): YardmasterError => new YardmasterError("KEY_EXISTS", `a key with the id ${id} exists already`);
  if (admin.ring.list().some(({ key }) => key.id === id && key.source !== "stored")) throw exists();
  return {
    id,
    act: () => {
      const issued = admin.stored.create(settings, admin.clock.wall(), given);
      if (issued === undefined) throw exists();
      loadStoredKeys(admin);
      return viewIssued(id, issued);
    },
  };
}

/** `DELETE /admin/keys/{id}`. */
export function revokeKey(admin: KeyAdmin, id: string): KeyChange<Here<RevokedKey>> {
  checkStored(admin, id);
  return {
    id,
    act: () => {
      if (!admin.stored.revoke(id)) throw notStored(admin, id);
      forget(admin, id);
      loadStoredKeys(admin);
      return { id, revoked: true };
    },
  };
}

/** `POST /admin/keys/{id}/rotate`; an absent body is an empty one. */
export function rotateKey(admin: KeyAdmin, id: string, body: unknown): KeyChange<Here<IssuedKey>> {
  const parsed = rotateKeyRequest.safeParse(body === undefined ? {} : body);
  if (!parsed.success) throw badRequest(parsed.error.issues);
  checkStored(admin, id);
  const given = givenHash(admin, parsed.data.hash);
  return {
    id,
    act: () => {
      const issued = admin.stored.rotate(id, parsed.data.overlap_s * 1000, admin.clock.wall(), given);
      if (issued === undefined) throw notStored(admin, id);
      loadStoredKeys(admin);
      return viewIssued(id, issued);
    },
  };
}

/** What was revoked lets nobody in from here on, also where the file can't be read back. */
function forget({ ring }: KeyAdmin, id: string): void {
  const stored = ring.list().flatMap(({ key }) => (key.source === "stored" && key.id !== id ? key : []));
  ring.replace("stored", stored);
}

/** Hexadecimal. Two ids of one key would be two names of whoever has it. */
function givenHash({ ring }: KeyAdmin, hash: string | undefined): string | undefined {
  const digits = hash?.replace(/^sha256:/, "");
  if (digits !== undefined && ring.list().some(({ key }) => key.hash === digits))
    throw new YardmasterError("KEY_EXISTS", "the key of this hash exists already");
  return digits;
}

function checkStored(admin: KeyAdmin, id: string): void {
  if (!admin.ring.list().some(({ key }) => key.id === id && key.source === "stored")) throw notStored(admin, id);
}

function badRequest(
  issues: readonly { readonly path: readonly PropertyKey[]; readonly message: string }[],
): YardmasterError {
  return new YardmasterError(
    "BAD_REQUEST",
    issues.map((issue) => `${issue.path.map(String).join(".") || "body"}: ${issue.message}`).join("; "),
  );
}

function notStored({ ring }: KeyAdmin, id: string): YardmasterError {
  const known = ring.list().find(({ key }) => key.id === id)?.key;
  if (known === undefined) return new YardmasterError("KEY_UNKNOWN", "there is no key with this id");
  return new YardmasterError(
    "KEY_IN_FILE",
    known.source === "config"
      ? `the key ${id} stands in the configuration file: change it there`
      : `the key ${id} belongs to this process and ends with it`,
  );
}

const isoOrNull = (time: EpochMs | null): string | null => (time === null ? null : formatIsoTime(time));
const FINGERPRINT_DIGITS = 12;

function viewKey(key: AcceptedKey, createdAt: EpochMs | null, lastUsedAt: EpochMs | null): KeyView {
  return {
    id: key.id,
    fingerprint: key.hash.slice(0, FINGERPRINT_DIGITS),
    source: key.source,
    role: key.role,
    classes: [...key.classes],
    models: key.models === null ? null : [...key.models],
    weight: key.weight,
    allow_external: key.allowExternal,
    expires: isoOrNull(key.expiresAt),
    created: isoOrNull(createdAt),
    last_used: isoOrNull(lastUsedAt),
  };
}

function viewIssued(id: string, issued: IssuedStoredKey): Here<IssuedKey> {
  return {
    id,
    key: issued.secret?.reveal() ?? null,
    hash: `sha256:${issued.hash}`,
    old_valid_until: isoOrNull(issued.oldValidUntil),
  };
}
