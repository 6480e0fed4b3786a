import { configFile, configFileWithoutGateway } from "../contract/config-schema.ts";
import type { ConfigFile } from "../contract/config-schema.ts";
import { resolveConfig } from "../contract/resolve-config.ts";
import type { ConfigOverrides, Env, GatewayConfig } from "../contract/resolve-config.ts";
import { checkYaml, readTextFile } from "./checked-yaml.ts";
import type { InvalidYaml } from "./checked-yaml.ts";
import { crossCheck } from "./cross-check.ts";

/** `digest` names the text: the same text in the same environment is the same configuration. */
export type LoadedConfig =
  | {
      readonly kind: "valid";
      readonly config: GatewayConfig;
      readonly file: ConfigFile;
      readonly warnings: readonly string[];
      readonly digest: string;
    }
  | InvalidYaml;

export const CONFIG_BYTES_MAX = 1_048_576;

/** All mistakes at once. No environment variable's value and no secret is in any message. */
export function parseConfigText(text: string, source: string, env: Env, overrides: ConfigOverrides = {}): LoadedConfig {
  const checked = checkYaml(text, source, {
    schema: overrides.gateway === false ? configFileWithoutGateway : configFile,
    env,
    findingsOf: (raw) => crossCheck(raw, env, overrides),
    bytesMax: CONFIG_BYTES_MAX,
    emptyMessage: "the file is empty: `upstreams` is missing",
  });
  if (checked.kind === "invalid") return checked;
  const { data, warnings, digest } = checked;
  return { kind: "valid", config: resolveConfig(data, env, overrides), file: data, warnings, digest };
}

/** Group or others may read. */
const SHARED_READ = 0o044;
/** scheme://user:password@ or scheme://:password@ in the text itself; one that comes from the environment is not in the file. */
const PASSWORD_IN_URL =
  /^\s*(?:redis_url|cache_redis_url|database_url)\s*:\s*["']?[a-z]+:\/\/[^\s@/]*:(?!\$\{)[^\s@/]+@/m;

/** Reads the file and parses it. A file that can't be read is a mistake like another. */
export async function loadConfigFile(path: string, env: Env, overrides: ConfigOverrides = {}): Promise<LoadedConfig> {
  const read = await readTextFile(path, CONFIG_BYTES_MAX);
  if (read.kind === "invalid") return read;
  const loaded = parseConfigText(read.text, path, env, overrides);
  if (loaded.kind === "invalid" || (read.mode & SHARED_READ) === 0 || !PASSWORD_IN_URL.test(read.text)) return loaded;
  return {
    ...loaded,
    warnings: [
      ...loaded.warnings,
      `${path}: holds a password and can be read by others; run chmod 600, or put the URL in an environment variable`,
    ],
  };
}
