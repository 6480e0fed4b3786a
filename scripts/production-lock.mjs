// The part of the manifest and of the lock file that is installed at a user's place.
import { readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const readJson = (name) => JSON.parse(readFileSync(join(root, name), "utf8"));

export function productionManifest() {
  const { devDependencies: _, scripts: __, ...manifest } = readJson("package.json");
  return manifest;
}

export function productionLock() {
  const lock = readJson("package-lock.json");
  const packages = Object.fromEntries(Object.entries(lock.packages).filter(([, entry]) => entry.dev !== true));
  const { devDependencies: _, ...own } = packages[""];
  return { ...lock, packages: { ...packages, "": own } };
}
