import assert from "node:assert/strict";
import { test } from "node:test";
import { startFakeAnalyzer } from "../../src/testing/analyzer/fake-analyzer.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { documentClient, submitDocument } from "./support/document-client.ts";
import { CLIENT_KEY } from "./support/program.ts";
import { shareFile } from "./support/shared-world.ts";
import { SupervisedGateway } from "./support/supervised-gateway.ts";

// Real gateway processes that are killed, and two of them before one Redis.

const upstreams = (url: string): readonly Record<string, unknown>[] => [
  { id: "documents", kind: "azure-di", models: ["prebuilt-read"], slots: 2, endpoints: [{ url }] },
];
const statusOf = async (location: string): Promise<string> => {
  const answer = await fetch(location, { headers: { "ocp-apim-subscription-key": CLIENT_KEY } });
  return ((await answer.json()) as { status?: string }).status ?? String(answer.status);
};

for (const signal of ["SIGKILL", "SIGTERM"] as const) {
  test(`a document that is being analysed when its gateway gets ${signal} comes to its result at the next one [20.F2]`, async () => {
    await using analyzer = await startFakeAnalyzer();
    analyzer.script({ match: { times: 1 }, do: { analyzeMs: 60_000 } });
    await using gateway = await SupervisedGateway.start({
      upstreams: upstreams(analyzer.url),
      drain_s: 0.5,
      jobs: { claim_ttl_s: 5 },
    });
    const client = documentClient(gateway.url, { key: CLIENT_KEY });
    const submitted = await submitDocument(client, { bytes: Buffer.from("%PDF-1.7 outlives its gateway") });
    await analyzer.until("the first look", (ledger) => (ledger.operations[0]?.looks ?? 0) > 0);
    await gateway.restart(signal);
    assert.ok(["notStarted", "running"].includes(await statusOf(submitted.location)));
    const operation = await submitted.end();
    assert.equal(operation.status, "succeeded");
    assert.equal(analyzer.ledger().operations.length, 2);
    assert.ok(operation.analyzeResult?.content.includes(analyzer.ledger().operations[1]?.bodySha256 ?? "none"));
  });
}

test("any gateway before the same Redis answers for an operation, also when the one that took it is gone [20.F2]", async () => {
  await using redis = await OwnRedis.start();
  await using analyzer = await startFakeAnalyzer({ analyzeMs: 300 });
  const file = shareFile(redis.url, { upstreams: upstreams(analyzer.url) });
  await using first = await SupervisedGateway.start(file);
  await using second = await SupervisedGateway.start(file);
  const submitted = await submitDocument(documentClient(first.url, { key: CLIENT_KEY }), {
    bytes: Buffer.from("%PDF-1.7 seen from two sides"),
  });
  const elsewhere = submitted.location.replace(first.url, second.url);
  assert.notEqual(elsewhere, submitted.location);
  await eventually(
    "the result at the other gateway",
    () => statusOf(elsewhere),
    (status) => status === "succeeded",
  );
  await first[Symbol.asyncDispose]();
  assert.equal(await statusOf(elsewhere), "succeeded");
  assert.equal(analyzer.ledger().operations.length, 1);
});
