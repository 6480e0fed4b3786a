// npm run -s sbom: prints the bill of materials (CycloneDX) of what runs at a user's place. In a clone npm itself leaves out what
// the project's own tools use too, so it is asked in a folder that knows of nothing else.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const readJson = (name) => JSON.parse(readFileSync(join(import.meta.dirname, "..", name), "utf8"));
const withoutDev = ({ devDependencies: _, scripts: __, ...manifest }) => manifest;

const lock = readJson("package-lock.json");
const packages = Object.fromEntries(Object.entries(lock.packages).filter(([, entry]) => entry.dev !== true));
packages[""] = withoutDev(packages[""]);

const folder = mkdtempSync(join(tmpdir(), "yardmaster-sbom-"));
try {
  writeFileSync(join(folder, "package.json"), JSON.stringify(withoutDev(readJson("package.json"))));
  writeFileSync(join(folder, "package-lock.json"), JSON.stringify({ ...lock, packages }));
  const { status } = spawnSync("npm", ["sbom", "--sbom-format=cyclonedx", "--package-lock-only"], {
    cwd: folder,
    stdio: ["ignore", "inherit", "inherit"],
  });
  process.exitCode = status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
