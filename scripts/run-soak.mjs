// npm run soak [-- NAME…]: the tests that find faults by chance, and those with processes that are killed, with the full counts
// instead of the short ones of `npm test`. Takes hours; each entry can be run by its name.
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const SOAKS = {
  sharing: { files: ["src/coord/slot-sharing-faults.test.ts"], env: { SIM_COUNT: "2000" } },
  store: {
    files: ["src/control/store/postgres-faults.test.ts", "src/control/store/sqlite-faults.test.ts"],
    env: { SOAK: "1" },
  },
  takeover: { files: ["test/e2e/control-takeover.test.ts"], env: { SOAK: "1" } },
  cluster: { files: ["test/e2e/exit-case.test.ts", "test/e2e/exit-case-freeze.test.ts"], env: { SOAK: "1" } },
  gateways: { files: ["test/e2e/coordination-processes.test.ts"], env: { SOAK: "1" } },
  failover: { files: ["test/e2e/coordination-failover.test.ts"], env: { SOAK: "1" } },
  jobs: { files: ["test/e2e/jobs-crash.test.ts"], env: { JOB_CRASH_JOBS: "1000" } },
};

const named = process.argv.slice(2);
const unknown = named.filter((name) => !Object.hasOwn(SOAKS, name));
if (unknown.length > 0) {
  console.error(`npm run soak: no soak ${unknown.join(", ")}; there are ${Object.keys(SOAKS).join(", ")}`);
  process.exit(2);
}
let failed = false;
for (const [name, { files, env }] of Object.entries(SOAKS)) {
  if (named.length > 0 && !named.includes(name)) continue;
  console.log(`soak: ${name}`);
  const { status } = spawnSync(process.execPath, ["--test", "--disable-warning=ExperimentalWarning", ...files], {
    cwd: join(import.meta.dirname, ".."),
    stdio: "inherit",
    env: { ...process.env, ...env },
  });
  failed ||= status !== 0;
}
process.exit(failed ? 1 : 0);
