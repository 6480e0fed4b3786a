// Part of packing: what runs at a user's place goes along as npm-shrinkwrap.json, so that whoever installs the package gets the
// versions and hashes that were tested, and not what is newest that day. `--remove` takes it away again, since beside a clone's
// package-lock.json it would be the one that counts.
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { productionLock } from "./production-lock.mjs";

const path = join(import.meta.dirname, "../npm-shrinkwrap.json");

if (process.argv.includes("--remove")) rmSync(path, { force: true });
else writeFileSync(path, `${JSON.stringify(productionLock(), null, 2)}\n`);
