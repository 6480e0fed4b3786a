import assert from "node:assert/strict";
import { test } from "node:test";
import { seededRandom } from "../../../kernel/random.ts";
import { analyseThrough, READ_V3, READ_V4, type Told } from "../../../testing/analyzer/analyse-through.ts";
import type { AnalyzerAction } from "../../../testing/analyzer/analyzer-script.ts";
import { startFakeAnalyzer } from "../../../testing/analyzer/fake-analyzer.ts";

const AT_ONCE = { retryAfterS: 0 } as const;
const shown = (told: Told): string =>
  told.kind === "error"
    ? told.failure
    : `${told.status} ${(JSON.parse(told.body) as { status?: string }).status ?? "-"}`;

for (const [family, path] of [
  ["v4.0", READ_V4],
  ["v3.1", READ_V3],
] as const) {
  test(`a container's submission, looks and result are one exchange: ${family} [20.F2]`, async () => {
    await using analyzer = await startFakeAnalyzer({ analyzeMs: 250 });
    analyzer.script({ do: AT_ONCE });
    const analysis = analyseThrough({ url: analyzer.url, path, body: "%PDF the document" });
    const told = await analysis.told;
    assert.equal(shown(told), "200 succeeded");
    const [operation] = analyzer.ledger().operations;
    assert.ok(told.kind === "answer" && operation !== undefined);
    assert.ok(told.body.includes(operation.bodySha256));
    assert.equal(operation.contentType, "application/pdf");
    assert.equal(operation.delivered, true);
    assert.equal(analysis.signs(), operation.looks - 1); // Each look that found it at work was told of.
    assert.equal(analysis.late(), 0);
  });
}

const endings: readonly (readonly [what: string, action: AnalyzerAction, shown: string])[] = [
  ["429 and its words pass", { submitStatus: 429 }, "429 -"],
  ["a server error passes", { submitStatus: 503 }, "503 -"],
  ["a reset in place of the 202", { submitReset: "before" }, "reset"],
  ["a lost document is one to be run again", { lostAfterLooks: 1, startMs: 60_000 }, "reset"],
  ["success without a result is one to be run again", { lookGarbage: "noResult" }, "reset"],
  ["a document at fault", { end: "failed", error: { code: "InvalidContent", message: "corrupted" } }, "422 failed"],
  ["a container at fault", { end: "failed" }, "500 failed"],
  ["a spoilt look is borne", { lookGarbage: "halfJson", spoiltLooks: 2 }, "200 succeeded"],
  ["a refused look is borne", { lookStatus: 429, spoiltLooks: 1 }, "200 succeeded"],
  ["a broken look is borne", { lookReset: true, spoiltLooks: 2 }, "200 succeeded"],
  ["an address on another host is not followed", { location: "elsewhere" }, "200 succeeded"],
  ["an address without a host is enough", { location: "relative" }, "200 succeeded"],
  ["a 202 without an address", { location: "absent" }, "protocol"],
  ["an address of something else", { location: "otherPath" }, "protocol"],
  ["an address that is none", { location: "unreadable" }, "protocol"],
];
for (const [what, action, expected] of endings) {
  test(`${what}: ${expected} [20.F2]`, async () => {
    await using analyzer = await startFakeAnalyzer();
    analyzer.script({ do: { ...AT_ONCE, ...action } });
    const analysis = analyseThrough({ url: analyzer.url });
    assert.equal(shown(await analysis.told), expected);
    assert.equal(analysis.late(), 0);
  });
}

test("a refusal keeps its Retry-After and its words [20.F2]", async () => {
  await using analyzer = await startFakeAnalyzer();
  analyzer.script({ do: { submitStatus: 429, retryAfterS: 7 } });
  const told = await analyseThrough({ url: analyzer.url }).told;
  assert.ok(told.kind === "answer");
  assert.match(told.body, /Please retry after/);
  assert.equal(told.rawHeaders[told.rawHeaders.findIndex((name) => name.toLowerCase() === "retry-after") + 1], "7");
});

test("a container that can't be asked any more ends it, and is told to stop [20.F2]", async () => {
  await using analyzer = await startFakeAnalyzer();
  analyzer.script({ do: { ...AT_ONCE, end: "never", lookGarbage: "html" } });
  assert.equal(shown(await analyseThrough({ url: analyzer.url }).told), "reset");
  await analyzer.until("the operation to be called off", (ledger) => ledger.operations[0]?.deleted === true);
});

test("an aborted exchange calls its operation off, and nothing is told of it any more [20.F2]", async () => {
  await using analyzer = await startFakeAnalyzer();
  analyzer.script({ do: { ...AT_ONCE, end: "never" } });
  const analysis = analyseThrough({ url: analyzer.url });
  await analyzer.until("a look", (ledger) => (ledger.operations[0]?.looks ?? 0) > 1);
  analysis.abort();
  await analyzer.until("the operation to be called off", (ledger) => ledger.operations[0]?.deleted === true);
  assert.equal(analysis.late(), 0);
});

test("v3.x has no request that calls an operation off, so none is sent", async () => {
  await using analyzer = await startFakeAnalyzer({ deletes: true });
  analyzer.script({ do: { ...AT_ONCE, end: "never" } });
  const analysis = analyseThrough({ url: analyzer.url, path: READ_V3 });
  await analyzer.until("a look", (ledger) => (ledger.operations[0]?.looks ?? 0) > 0);
  analysis.abort();
  const next = analyseThrough({ url: analyzer.url, path: READ_V3 });
  await analyzer.until("the next one", (ledger) => (ledger.operations[1]?.looks ?? 0) > 0);
  next.abort();
  assert.deepEqual(
    analyzer.ledger().operations.map(({ deleted }) => deleted),
    [false, false],
  );
});

test("the upstream's key goes to the container in the service's own header [20.F2]", async () => {
  await using analyzer = await startFakeAnalyzer({ key: "CANARY-container-key" });
  analyzer.script({ do: AT_ONCE });
  const upstream = { key_env: "DI_KEY" };
  const env = { DI_KEY: "CANARY-container-key" };
  assert.equal(shown(await analyseThrough({ url: analyzer.url, upstream, env }).told), "200 succeeded");
  assert.equal(shown(await analyseThrough({ url: analyzer.url }).told), "401 -");
  const names = analyzer.ledger().operations[0]?.headers.filter((_, index) => index % 2 === 0) ?? [];
  assert.ok(!names.some((name) => name.toLowerCase() === "authorization"));
});

test("a large result is whole for a reader that pauses after each piece", async () => {
  await using analyzer = await startFakeAnalyzer();
  analyzer.script({ do: { ...AT_ONCE, textBytes: 3_000_000 } });
  const told = await analyseThrough({ url: analyzer.url, slowly: true }).told;
  assert.ok(told.kind === "answer" && told.body.length > 3_000_000);
  assert.equal(shown(told), "200 succeeded");
});

const seed = Number(process.env["SIM_SEED"] ?? 1);
test(`whatever a container does, each document has one end, and an end well only with its own result (seed ${seed}) [20.F2]`, async () => {
  const random = seededRandom(seed);
  const pick = <T>(...values: readonly T[]): T => values[Math.floor(random.next() * values.length)] as T;
  await using analyzer = await startFakeAnalyzer();
  const analyses = Array.from({ length: 40 }, (_, index) => {
    const holds = `%PDF document ${index};`;
    const action: AnalyzerAction = {
      ...AT_ONCE,
      ...pick<AnalyzerAction>({}, {}, { analyzeMs: 150 }, { startMs: 50 }, { end: "failed" }),
      ...pick<AnalyzerAction>(
        {},
        {},
        { submitStatus: pick(400, 429, 500) },
        { submitReset: pick("before", "after") },
        { location: pick("absent", "relative", "elsewhere", "unreadable", "otherPath") },
      ),
      ...pick<AnalyzerAction>(
        {},
        { lostAfterLooks: 1 },
        { lookReset: true, spoiltLooks: 1 },
        { lookStatus: pick(404, 429, 500), spoiltLooks: 1 },
        { lookGarbage: pick("html", "halfJson", "list", "unknownStatus", "empty"), spoiltLooks: 2 },
        { lookGarbage: "noResult" },
      ),
    };
    analyzer.script({ match: { holds }, do: action });
    return analyseThrough({ url: analyzer.url, body: holds });
  });
  for (const [index, analysis] of analyses.entries()) {
    const told = await analysis.told;
    assert.equal(analysis.late(), 0);
    if (told.kind === "error" || told.status !== 200) continue;
    const { analyzeResult } = JSON.parse(told.body) as { analyzeResult: { content: string } };
    const own = analyzer.ledger().operations.filter(({ bodySha256 }) => analyzeResult.content.includes(bodySha256));
    assert.equal(own.length, 1, `document ${index}`);
    assert.equal(own[0]?.delivered, true);
  }
});
