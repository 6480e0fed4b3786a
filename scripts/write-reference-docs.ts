// Writes the pages of docs/reference that are made from the code. With `--check` it writes nothing, and fails when one is not current.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { allPages } from "./reference/all-pages.ts";

const folder = join(import.meta.dirname, "../docs/reference");
const pages = await allPages();
const stale = pages.filter(({ file, text }) => {
  const path = join(folder, file);
  return !existsSync(path) || readFileSync(path, "utf8") !== text;
});
if (process.argv.includes("--check")) {
  for (const { file } of stale) process.stderr.write(`docs/reference/${file} is not current: run 'npm run docs'\n`);
  process.exitCode = stale.length === 0 ? 0 : 1;
} else {
  mkdirSync(folder, { recursive: true });
  for (const { file, text } of stale) writeFileSync(join(folder, file), text);
}
