import { stringify } from "yaml";
import { configFile } from "../contract/config-schema.ts";
import type { ConfigFile } from "../contract/config-schema.ts";
import type { GatewayConfig } from "../contract/gateway-config.ts";
import { formatListen } from "../contract/listen-address.ts";
import { z } from "zod";

/** The configuration as it is in force: a complete file, every default and derived value written out, passwords masked. */
export function effectiveFile(file: ConfigFile, config: GatewayConfig): ConfigFile {
  return {
    ...file,
    listen: formatListen(config.listen),
    data_dir: config.dataDir,
    ...(file.redis_url === undefined ? {} : { redis_url: maskUrl(file.redis_url) }),
    ...(file.cache_redis_url === undefined ? {} : { cache_redis_url: maskUrl(file.cache_redis_url) }),
    ...(file.database_url === undefined ? {} : { database_url: maskUrl(file.database_url) }),
    metrics: { public: config.metricsPublic },
    upstreams: file.upstreams.map((upstream, index) => {
      const resolved = config.upstreams[index];
      if (resolved === undefined) return upstream;
      // Those of a catalog's model without limits of its own are those of its replicas.
      const ofReplicas = resolved.catalog !== null && resolved.catalog.slots === null;
      return {
        ...upstream,
        ...(ofReplicas ? {} : { slots: resolved.limits.slots, batch_max: resolved.limits.batchMax }),
        endpoints: upstream.endpoints.map((endpoint, at) => ({
          ...endpoint,
          slots: resolved.endpoints[at]?.slots ?? endpoint.slots,
        })),
      };
    }),
  };
}

export const printConfig = (file: ConfigFile, config: GatewayConfig): string =>
  stringify(effectiveFile(file, config), { version: "1.2", lineWidth: 0 });

/** Hides the password and everything behind a question mark; a text that is no URL is hidden whole. */
export function maskUrl(text: string): string {
  if (text.startsWith("sqlite:")) return text.split("?", 1)[0] ?? text;
  const url = URL.parse(text);
  if (url === null) return "[redacted]";
  const user = url.password === "" ? url.username : `${url.username}:[redacted]`;
  return `${url.protocol}//${user === "" ? "" : `${user}@`}${url.host}${url.pathname}${url.search === "" ? "" : "?[redacted]"}`;
}

const ENV_REFERENCE = { type: "string", pattern: "\\$\\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\\}" };

/** JSON Schema (draft 7, which editors know best) of what an author writes, `${NAME}` in place of any single value included. */
export function configJsonSchema(): object {
  const schema = z.toJSONSchema(configFile, {
    target: "draft-7",
    io: "input",
    override: ({ jsonSchema }) => {
      const single =
        ["number", "integer", "boolean"].includes(String(jsonSchema.type)) ||
        (jsonSchema.type === "string" && (jsonSchema.enum ?? jsonSchema.pattern) !== undefined);
      if (!single) return;
      const { description, default: fallback, ...rule } = jsonSchema;
      for (const key of Object.keys(rule)) delete jsonSchema[key];
      jsonSchema.anyOf = [rule, { ...ENV_REFERENCE }] as NonNullable<typeof jsonSchema.anyOf>;
    },
  });
  return { title: "yardmaster.yaml", ...schema };
}
