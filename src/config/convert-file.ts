import { parseDocument, stringify } from "yaml";
import type { Env } from "../contract/resolve-config.ts";
import { valueIn } from "../contract/env.ts";
import type { Conversion } from "../decide/convert/conversion.ts";
import { convertLitellm } from "../decide/convert/from-litellm.ts";
import { convertLlamaSwap } from "../decide/convert/from-llama-swap.ts";
import type { GpuGiven } from "../decide/convert/llama-swap-model.ts";
import { messageOf } from "../kernel/errors.ts";
import { formatPath, formatProblems } from "./config-problem.ts";
import { CONFIG_BYTES_MAX, parseConfigText } from "./load-config.ts";
import { parseCatalogText } from "./load-catalog.ts";

export const FOREIGN_FORMATS = ["litellm", "llama-swap"] as const;
export type ForeignFormat = (typeof FOREIGN_FORMATS)[number];

export interface ConversionWarning {
  /** Key of the other file, such as `model_list[0].litellm_params.rpm`; of ours, where `kind` is `check`. */
  readonly path: string;
  /** As in `ConversionNote`; `check` is a warning of `yardmaster config check` on what was made. */
  readonly kind: "dropped" | "changed" | "assumed" | "secret" | "check";
  readonly message: string;
}

export type ConvertedFile =
  | {
      readonly kind: "converted";
      /** The text of `yardmaster.yaml`. */
      readonly config: string;
      /** The text of `catalog.yaml`; null where no model is started here. */
      readonly catalog: string | null;
      readonly warnings: readonly ConversionWarning[];
      /** Environment variables that the configuration names. */
      readonly variables: readonly string[];
    }
  | { readonly kind: "refused"; readonly why: string };

export interface ConvertOptions {
  readonly from: ForeignFormat;
  readonly env: Env;
  readonly gpu: GpuGiven | null;
}

const ALIASES_MAX = 100;

/** Another program's configuration in our words. What comes out was checked as a role would check it. */
export function convertText(text: string, { from, env, gpu }: ConvertOptions): ConvertedFile {
  if (Buffer.byteLength(text) > CONFIG_BYTES_MAX) return refuse(`the file is larger than ${CONFIG_BYTES_MAX} bytes`);
  const read = readForeign(text, from);
  if (read.kind === "refused") return read;
  const conversion: Conversion =
    from === "litellm"
      ? convertLitellm(read.value)
      : convertLlamaSwap(read.value, { gpu, env: (name) => valueIn(env, name) });
  return conversion.kind === "refused" ? conversion : toFiles(conversion, env);
}

const refuse = (why: string): { readonly kind: "refused"; readonly why: string } => ({ kind: "refused", why });

/** Both programs read YAML by rules of their own: LiteLLM's has the truth values of 1.1, and both merge keys. */
function readForeign(
  text: string,
  from: ForeignFormat,
): { readonly kind: "read"; readonly value: unknown } | { readonly kind: "refused"; readonly why: string } {
  try {
    const doc = parseDocument(text, {
      version: from === "litellm" ? "1.1" : "1.2",
      merge: true,
      prettyErrors: true,
      logLevel: "error",
    });
    const [error] = doc.errors;
    if (error !== undefined) return refuse(error.message.split("\n", 1)[0] ?? "is no YAML");
    return { kind: "read", value: doc.toJS({ maxAliasCount: ALIASES_MAX }) as unknown };
  } catch (error) {
    return refuse(error instanceof RangeError ? "is nested too deeply to be read" : messageOf(error));
  }
}

function toFiles(converted: Conversion & { readonly kind: "converted" }, env: Env): ConvertedFile {
  const write = (value: unknown): string =>
    stringify(value, { version: "1.2", lineWidth: 0, aliasDuplicateObjects: false });
  const config = write(converted.config);
  const catalog = converted.catalog === null ? null : write(converted.catalog);
  const notes = converted.notes.map(({ path, kind, message }): ConversionWarning => ({
    path: formatPath(path),
    kind,
    message,
  }));
  const checkedConfig = parseConfigText(config, "yardmaster.yaml", withStandIns(env, converted.variables), {
    standIn: true,
  });
  if (checkedConfig.kind === "invalid")
    return refuse(`what was made of it is no configuration:\n${formatProblems(checkedConfig.problems)}`);
  const checkedCatalog = catalog === null ? null : parseCatalogText(catalog, "catalog.yaml");
  if (checkedCatalog?.kind === "invalid")
    return refuse(`what was made of it is no catalog:\n${formatProblems(checkedCatalog.problems)}`);
  const checks = [...checkedConfig.warnings, ...(checkedCatalog?.warnings ?? [])].map(asWarning);
  return { kind: "converted", config, catalog, warnings: [...notes, ...checks], variables: converted.variables };
}

/** Variables need not be set yet: a place that only has its value later is checked with one that would do. */
const withStandIns = (env: Env, names: readonly string[]): Env => ({
  ...Object.fromEntries(
    names.map((name) => [
      name,
      /URL|BASE/i.test(name) ? "http://127.0.0.1:9" : /PORT/i.test(name) ? "6379" : "stand-in",
    ]),
  ),
  ...env,
});

function asWarning(line: string): ConversionWarning {
  const match = /^(\S+?):\d+:\d+: (\S+): ([\s\S]*)$/.exec(line);
  return match === null
    ? { path: "", kind: "check", message: line }
    : { path: match[2] ?? "", kind: "check", message: `${match[1]}: ${match[3]}` };
}
