import { after } from "node:test";
import { Secret } from "../../kernel/secret.ts";
import { startPostgresDatabases } from "../../testing/servers/postgres-databases.ts";
import { runCatalogSuite } from "./catalogs.conformance.ts";
import { runDocumentSuite } from "./documents.conformance.ts";
import { runEnrolmentSuite } from "./enrolments.conformance.ts";
import { runGatewaySuite } from "./gateway-credentials.conformance.ts";
import { openPostgres } from "./postgres-driver.ts";
import { makeSuite } from "./suite.conformance.ts";

const databases = await startPostgresDatabases();
after(() => databases[Symbol.asyncDispose]());

const suite = makeSuite({
  name: "PostgreSQL",
  create: async () => {
    const url = await databases.create();
    return () => Promise.resolve(openPostgres(new Secret(url)));
  },
});
runDocumentSuite(suite);
runCatalogSuite(suite);
runEnrolmentSuite(suite);
runGatewaySuite(suite);
