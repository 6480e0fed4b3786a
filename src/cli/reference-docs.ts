import type { z } from "zod";
import { catalogFile } from "../contract/catalog-schema.ts";
import { configFile } from "../contract/config-schema.ts";
import { renderMetricsReference } from "../contract/metrics-reference.ts";
import { listFields } from "../contract/schema-fields.ts";
import type { Field } from "../contract/schema-fields.ts";
import { ERRORS } from "../kernel/errors.ts";
import type { Command } from "./cli-io.ts";

/** Pages of docs/reference that are made from the code. A test compares them with the files, so they can't drift apart. */
export interface ReferencePage {
  /** In docs/reference. */
  readonly file: string;
  readonly text: string;
}

const GENERATED = "<!-- Made by `npm run docs` from the code; changes here are lost. -->\n\n";

export const referencePages = (): readonly ReferencePage[] => [
  { file: "catalog.md", text: renderCatalogPage() },
  { file: "config.md", text: renderConfigPage() },
  { file: "errors.md", text: renderErrorsPage() },
  { file: "metrics.md", text: GENERATED + renderMetricsReference() },
];

const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("\n", " ");

/** A table for each mapping of the schema, with a row for each of its keys. */
function renderKeys(schema: z.core.$ZodType): string {
  const groups = new Map<string, Field[]>();
  for (const field of listFields(schema)) {
    const parent = field.path.slice(0, Math.max(0, field.path.length - field.key.length - 1));
    // A mapping that only groups keys has its keys as rows of its own section.
    groups.set(parent, [...(groups.get(parent) ?? []), field]);
  }
  const sections = [...groups].map(([parent, fields]) => {
    const rows = fields.map(
      (field) =>
        `| \`${field.key}\` | ${cell(field.type)} | ${cell(renderDefault(field))} | ${cell(renderDescription(field))} |`,
    );
    return `## ${parent === "" ? "Top level" : `\`${parent}\``}\n\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n${rows.join("\n")}\n`;
  });
  return sections.join("\n");
}

export const renderCatalogPage = (): string => `${GENERATED}# Catalog

Every key of a catalog file. What they mean together: [the catalog](../concepts/catalog.md). \`yardmaster ctl catalog check FILE\` lists every
mistake with its place. YAML 1.2, as in the configuration, but a catalog may not refer to environment variables: \`\${…}\` is a mistake, and
\`$\${\` a plain \`\${\`. JSON is read as well.

${renderKeys(catalogFile)}`;

export function renderConfigPage(): string {
  return `${GENERATED}# Configuration

One YAML file, \`yardmaster.yaml\`; \`--config FILE\` names another. YAML 1.2: only \`true\` and \`false\` are truth values. An unknown key, a
key given twice and a value of the wrong kind are mistakes, and a role does not start with one. \`yardmaster config check FILE\` lists
them all, \`yardmaster config print FILE\` shows what is in force, \`yardmaster config schema\` prints a JSON Schema for editors.

A value may hold \`\${NAME}\` or \`\${NAME:-default}\`, which stand for environment variables; \`$\${\` is a plain \`\${\`. They are put in after the
file is read, so a variable can't add keys. A value that is one reference and not in quotes may become a number or a truth value.
Inside \`[ ]\` and \`{ }\` a reference needs quotes.

The file is read again when it changes and on SIGHUP. A valid one is in force for new requests at once; an invalid one is refused with
a log line, and the old one stays. \`listen\`, \`data_dir\`, \`coordination\`, \`redis_url\`, \`coordination_timeout_ms\`, \`lease_ttl_s\`, \`key_prefix\`, \`database_url\`, \`client_server\`, \`upstream_client\`, \`otel\`, \`audit\`,
\`http.headers_timeout_s\` and \`http.keep_alive_s\` wait for the next start.

${renderKeys(configFile)}`;
}

const CLI_SECTIONS: readonly (readonly [title: string, takes: (words: readonly string[]) => boolean])[] = [
  ["Roles", ({ length }) => length === 1],
  ["The configuration and its keys", ([first, second]) => first !== "ctl" && second !== undefined],
  ["A running system", ([first, second]) => first === "ctl" && second !== undefined],
];

/** Every command with the whole text of its `--help`. */
export function renderCliPage(commands: readonly Command[]): string {
  const sections = CLI_SECTIONS.map(([title, takes]) => {
    const entries = commands
      .filter(({ words }) => takes(words))
      .map(
        ({ words, summary, help }) =>
          `### \`yardmaster ${words.join(" ")}\`\n\n${summary[0]?.toUpperCase()}${summary.slice(1)}.\n\n\`\`\`text\n${help.trimEnd()}\n\`\`\`\n`,
      );
    return `## ${title}\n\n${entries.join("\n")}`;
  });
  return `${GENERATED}# Command line

\`yardmaster --help\` lists the commands, \`yardmaster COMMAND --help\` explains one. Results are on standard output, remarks and errors on standard
error. Exit codes: 0 done, 1 refused or failed, 2 the command line or a file can't be used, 3 nobody was reached.

${sections.join("\n")}`;
}

function renderDefault(field: Field): string {
  if (field.required) return "**needed**";
  return field.default === undefined ? "" : `\`${JSON.stringify(field.default)}\``;
}

const renderDescription = (field: Field): string =>
  field.description === "" && field.type === "mapping" ? "See its own section below." : field.description;

const RETRY = { never: "no", afterDelay: "after a pause" } as const;

export function renderErrorsPage(): string {
  const rows = Object.entries(ERRORS).map(([code, entry]) => {
    const retryAfter = "retryAfter" in entry ? "yes" : "";
    return `| \`${code}\` | ${entry.http} | ${RETRY[entry.retry]} | ${retryAfter} | ${cell(entry.meaning)} |`;
  });
  return `${GENERATED}# Errors

Every error that Yardmaster itself answers with is JSON: \`{"error":{"message","type","code","param","request_id"}}\`. On \`/v1/messages\` and on the routes of documents the same \`code\` stands in the form that their clients read; a
control plane adds \`details\` where there is more to say. The \`code\` never changes its meaning; the \`message\` may change. An engine's own error
answer passes through as the engine wrote it.

| code | HTTP status | try the same again? | \`Retry-After\` | meaning |
| --- | --- | --- | --- | --- |
${rows.join("\n")}
`;
}
