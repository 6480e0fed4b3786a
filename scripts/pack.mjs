// Around `npm pack`. --begin: what an earlier build left is taken away, so that nothing is packed whose source has gone, and the lock
// file goes along as npm-shrinkwrap.json, so that `npm ci` in the unpacked package installs the versions and hashes that were
// tested. --end: beside a clone's package-lock.json it would be the one that counts, so it goes.
import { copyFileSync, rmSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const shrinkwrap = join(root, "npm-shrinkwrap.json");

if (process.argv.includes("--begin")) {
  rmSync(join(root, "dist"), { recursive: true, force: true });
  copyFileSync(join(root, "package-lock.json"), shrinkwrap);
}
if (process.argv.includes("--end")) rmSync(shrinkwrap, { force: true });
