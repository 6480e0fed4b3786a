import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RefusalDetails } from "../../../src/contract/control-api.ts";
import { NO_LIMITS, type ApiKey } from "../../../src/contract/gateway-config.ts";
import { hashKey } from "../../../src/contract/key-hash.ts";
import { controlSection, type ControlSection } from "../../../src/contract/control-schema.ts";
import { resolveControl } from "../../../src/contract/resolve-control.ts";
import { ROLES, type Role } from "../../../src/contract/roles.ts";
import { ControlPlane, type ControlPlaneOptions } from "../../../src/control/control-plane.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { KeptLog } from "../../../src/testing/kept-log.ts";

export interface ApiAnswer<T> {
  readonly status: number;
  readonly headers: Headers;
  readonly body: T & {
    readonly error?: { readonly code: string; readonly message: string };
    readonly details?: RefusalDetails;
  };
}

export interface TestControl extends AsyncDisposable {
  readonly url: string;
  readonly plane: ControlPlane;
  readonly dataDir: string;
  readonly logLines: readonly string[];
  /** The key that `keyOf` shows. */
  readonly apiKey: (role: Role) => ApiKey;
  /** As the administrator unless told otherwise; null sends no key. */
  ask<T = Record<string, unknown>>(
    method: string,
    path: string,
    options?: { readonly body?: string; readonly role?: Role | null; readonly headers?: Record<string, string> },
  ): Promise<ApiAnswer<T>>;
}

export const keyOf = (role: Role): string => `CANARY-${role}-0123456789abcdef0123456789abcdef`;

const apiKey = (role: Role): ApiKey => ({
  id: `key-${role}`,
  hash: hashKey(keyOf(role)),
  role,
  classes: ["interactive"],
  models: null,
  weight: 1,
  limits: NO_LIMITS,
  allowExternal: false,
  expiresAt: null,
});

/** A control plane in this process on a free loopback port, with a key for each role. */
export async function startTestControl(
  options: Partial<Pick<ControlPlaneOptions, "makeView" | "databaseUrl" | "dataDir" | "metricsPublic" | "otel">> & {
    readonly control?: Partial<ControlSection>;
    /** Absent: a free port. */
    readonly listen?: string;
  } = {},
): Promise<TestControl> {
  const { control, listen = "127.0.0.1:0", dataDir: given, ...rest } = options;
  const dataDir = given ?? (await mkdtemp(join(tmpdir(), "yardmaster-control-")));
  const log = new KeptLog();
  const plane = await ControlPlane.start({
    settings: resolveControl(controlSection.parse(control ?? {}), listen),
    auth: { mode: "keys", allowInsecure: false, keys: ROLES.map(apiKey) },
    sessionKeys: [],
    dataDir,
    databaseUrl: null,
    signingSecrets: null,
    clock: systemClock,
    log: log.logger,
    version: "0.0.0-test",
    otel: null,
    ...rest,
  });
  const url = `http://${plane.address}`;
  return {
    url,
    plane,
    dataDir,
    get logLines() {
      return log.lines;
    },
    apiKey,
    ask: async <T>(
      method: string,
      path: string,
      {
        body,
        role = "admin",
        headers = {},
      }: { body?: string; role?: Role | null; headers?: Record<string, string> } = {},
    ) => {
      const authorization: Record<string, string> = role === null ? {} : { authorization: `Bearer ${keyOf(role)}` };
      const response = await fetch(url + path, {
        method,
        headers: { ...authorization, ...headers },
        ...(body === undefined ? {} : { body }),
      });
      const text = await response.text();
      const parsed = response.headers.get("content-type") === "application/json" ? JSON.parse(text) : { text };
      return { status: response.status, headers: response.headers, body: parsed as ApiAnswer<T>["body"] };
    },
    [Symbol.asyncDispose]: async () => {
      await plane.stop();
      if (given === undefined) await rm(dataDir, { recursive: true, force: true });
    },
  };
}
