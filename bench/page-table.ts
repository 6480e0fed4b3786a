import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";

/** In words for a table's first line. */
export const machine = (): string =>
  `${cpus().length} cores, ${cpus()[0]?.model.trim() ?? "unknown"}; Node ${process.version}`;

/** Prints the table, and with `write` puts it into docs/benchmarks.md between the marks of its name. */
export function showTable(name: string, lines: readonly string[], write: boolean): void {
  const table = [`<!-- ${name} -->`, "", ...lines, "", `<!-- /${name} -->`].join("\n");
  process.stdout.write(`${table}\n`);
  if (!write) return;
  const path = new URL("../docs/benchmarks.md", import.meta.url);
  const text = readFileSync(path, "utf8");
  const marks = new RegExp(`<!-- ${name} -->[^]*<!-- /${name} -->`);
  if (!marks.test(text)) throw new Error(`docs/benchmarks.md has no place for the table ${name}`);
  writeFileSync(
    path,
    text.replace(marks, () => table),
  );
}
