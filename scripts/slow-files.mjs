// A reporter for Node's test runner: which files took longest, told when all are through. Where a run has become slow, look here first.
import { relative } from "node:path";

const SHOWN = 15;

export default async function* slowFiles(events) {
  const took = [];
  for await (const { type, data } of events)
    if (type === "test:summary" && data.file !== undefined) took.push({ file: data.file, ms: data.duration_ms });
  const all = took.reduce((sum, { ms }) => sum + ms, 0);
  yield `slowest of ${took.length} files, ${Math.round(all / 1_000)} s in all:\n`;
  for (const { file, ms } of took.toSorted((a, b) => b.ms - a.ms).slice(0, SHOWN))
    yield `  ${(ms / 1_000).toFixed(1).padStart(6)} s  ${relative(process.cwd(), file)}\n`;
}
