// Part of `npm run build`: what the compiler leaves behind, the Lua scripts, goes beside the code that reads them.
import { cpSync, globSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
for (const path of globSync("src/**/*.lua", { cwd: root }))
  cpSync(join(root, path), join(root, path.replace("src", "dist")));
