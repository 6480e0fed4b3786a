import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { systemClock } from "../../kernel/clock.ts";
import { runCatalogSuite } from "./catalogs.conformance.ts";
import { runDocumentSuite } from "./documents.conformance.ts";
import { runEnrolmentSuite } from "./enrolments.conformance.ts";
import { runGatewaySuite } from "./gateway-credentials.conformance.ts";
import { openSqlite } from "./sqlite-driver.ts";
import { makeSuite } from "./suite.conformance.ts";

const folder = await mkdtemp(join(tmpdir(), "yardmaster-store-"));
after(() => rm(folder, { recursive: true, force: true }));

let made = 0;
const suite = makeSuite({
  name: "SQLite",
  create: () => {
    const path = join(folder, `${(made += 1)}`, "control.db");
    return Promise.resolve(() => openSqlite({ path, clock: systemClock }));
  },
});
runDocumentSuite(suite);
runCatalogSuite(suite);
runEnrolmentSuite(suite);
runGatewaySuite(suite);
