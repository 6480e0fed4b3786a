// Holds docs/reference/guarantees.md and the tests together: fails on a promise that no test shows, on a tag in a test's
// title that names no promise, and where the document's list of tests is not current.
// usage: check-guarantees [--write | --list]
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

const ROOT = join(import.meta.dirname, "..");
const DOCUMENT = "docs/reference/guarantees.md";
const TEST_FILES = ["dashboard/**/*.test.ts", "src/**/*.{test,conformance}.ts", "test/**/*.{test,conformance}.ts"];
const TAG = /\[(\d\d\.[A-Z]\d+[a-z]?(?: \d\d\.[A-Z]\d+[a-z]?)*)\]$/;
const NEARLY_A_TAG = /\[\s*\d\d\s*\.\s*[A-Za-z]\s*\d/;
const HEADING = /^### (\d\d\.[A-Z]\d+[a-z]?) — \S/;
const BEGIN = "<!-- tests: written by `npm run docs` -->";
const END = "<!-- /tests -->";

interface Shown {
  readonly file: string;
  readonly title: string;
}

/** A title as it stands in the source, with `…` where a template string puts a value in. */
function titleOf(node: ts.Node): string | undefined {
  if (ts.isStringLiteralLike(node)) return node.text;
  if (!ts.isTemplateExpression(node)) return undefined;
  return node.head.text + node.templateSpans.map((span) => `…${span.literal.text}`).join("");
}

function readTests(problems: string[]): Map<string, Shown[]> {
  const tests = new Map<string, Shown[]>();
  for (const file of globSync(TEST_FILES, { cwd: ROOT }).toSorted()) {
    const source = ts.createSourceFile(file, readFileSync(join(ROOT, file), "utf8"), ts.ScriptTarget.Latest);
    const visit = (node: ts.Node): void => {
      const title = titleOf(node);
      const tag = title === undefined ? null : TAG.exec(title);
      if (title !== undefined && tag?.[1] !== undefined) {
        for (const id of tag[1].split(" ")) {
          const shown = tests.get(id) ?? [];
          shown.push({ file, title: title.slice(0, tag.index).trim() });
          tests.set(id, shown);
        }
      } else if (title !== undefined && NEARLY_A_TAG.test(title)) {
        problems.push(`${file}: a tag stands in brackets at the end of a title, ids parted by one blank: ${title}`);
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
  }
  return tests;
}

/** The document in parts: what comes before the first promise, then one part per promise. */
function readPromises(text: string, problems: string[]): { id: string | undefined; lines: string[] }[] {
  const parts: { id: string | undefined; lines: string[] }[] = [{ id: undefined, lines: [] }];
  let inTests = false;
  for (const line of text.split("\n")) {
    if (line.startsWith("#")) {
      const id = HEADING.exec(line)?.[1];
      if (line.startsWith("###") && id === undefined) problems.push(`${DOCUMENT}: not like "### 10.A7 — …": ${line}`);
      if (id !== undefined && parts.some((part) => part.id === id))
        problems.push(`${DOCUMENT}: ${id} stands there twice`);
      parts.push({ id, lines: [] });
    }
    if (line === BEGIN) inTests = true;
    if (!inTests) parts.at(-1)?.lines.push(line);
    if (line === END) inTests = false;
  }
  return parts;
}

function render(parts: readonly { id: string | undefined; lines: string[] }[], tests: Map<string, Shown[]>): string {
  const texts = parts.map(({ id, lines }) => {
    const body = lines.join("\n").trimEnd();
    const shown = id === undefined ? undefined : tests.get(id);
    if (shown === undefined) return body;
    const items = shown.map(({ file, title }) => `- ${title} (\`${file}\`)`);
    return [body, "", BEGIN, ...items, END].join("\n");
  });
  return `${texts.filter((text) => text !== "").join("\n\n")}\n`;
}

function main(mode: string | undefined): number {
  const problems: string[] = [];
  const tests = readTests(problems);
  const text = readFileSync(join(ROOT, DOCUMENT), "utf8");
  const parts = readPromises(text, problems);
  const promised = parts.flatMap(({ id }) => id ?? []);
  for (const id of promised) if (!tests.has(id)) problems.push(`${DOCUMENT}: no test shows ${id}`);
  for (const [id, shown] of tests) {
    if (!promised.includes(id)) problems.push(`${shown[0]?.file}: ${id} is no promise of ${DOCUMENT}`);
  }

  const current = render(parts, tests);
  if (mode === "--write") writeFileSync(join(ROOT, DOCUMENT), current);
  else if (text !== current) problems.push(`${DOCUMENT}: its list of tests is not current: run 'npm run docs'`);
  if (mode === "--list") {
    for (const id of promised) {
      console.log(id);
      for (const { file, title } of tests.get(id) ?? []) console.log(`    ${title}  (${file})`);
    }
  }
  for (const problem of problems) console.error(problem);
  const shownCount = promised.filter((id) => tests.has(id)).length;
  console.log(`guarantees: ${shownCount} of ${promised.length} promises are shown by tests`);
  return problems.length > 0 ? 1 : 0;
}

process.exitCode = main(process.argv[2]);
