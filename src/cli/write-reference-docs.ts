import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { referencePages } from "./reference-docs.ts";

const folder = join(import.meta.dirname, "../../docs/reference");
mkdirSync(folder, { recursive: true });
for (const page of referencePages()) writeFileSync(join(folder, page.file), page.text);
