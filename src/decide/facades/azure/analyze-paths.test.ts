import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { operationIdOf, readAnalyzeTarget, readResultTarget, resultPath } from "./analyze-paths.ts";

const V4 = "?api-version=2024-11-30";
const TARGET = { family: "documentintelligence", modelId: "prebuilt-read", apiVersion: "2024-11-30" } as const;

const readable: readonly (readonly [path: string, query: string, target: string])[] = [
  ["/documentintelligence/documentModels/prebuilt-read:analyze", V4, "documentintelligence prebuilt-read 2024-11-30"],
  ["/formrecognizer/documentModels/a1:analyze", "?api-version=2022-08-31", "formrecognizer a1 2022-08-31"],
  [
    "/formrecognizer/documentModels/m.~_-:analyze",
    "?pages=1&api-version=2023-07-31",
    "formrecognizer m.~_- 2023-07-31",
  ],
  [
    "/documentintelligence/documentModels/m1:analyze",
    "?api-version=2024-07-31-preview",
    "documentintelligence m1 2024-07-31-preview",
  ],
];
for (const [path, query, target] of readable) {
  test(`${path}${query} is a submission under its family and version [20.F2]`, () => {
    const read = readAnalyzeTarget(path, query);
    assert.ok(read.kind === "ok");
    assert.equal(`${read.value.family} ${read.value.modelId} ${read.value.apiVersion}`, target);
  });
}

const unreadable: readonly (readonly [path: string, query: string])[] = [
  ["/documentintelligence/documentModels/prebuilt-read:analyze", ""],
  ["/documentintelligence/documentModels/prebuilt-read:analyze", "?api-version="],
  ["/documentintelligence/documentModels/prebuilt-read:analyze", "?api-version=v4"],
  ["/documentintelligence/documentModels/prebuilt-read:analyze", `${V4}&api-version=2023-07-31`],
  ["/documentintelligence/documentModels/:analyze", V4],
  ["/documentintelligence/documentModels/x:analyze", V4],
  ["/documentintelligence/documentModels/-x:analyze", V4],
  ["/documentintelligence/documentModels/a:b:analyze", V4],
  ["/documentintelligence/documentModels/a/b:analyze", V4],
  [`/documentintelligence/documentModels/${"a".repeat(65)}:analyze`, V4],
  ["/documentintelligence/documentModels/a%20b:analyze", V4],
  ["/documentintelligence/documentModels/ab:analyzeBatch", V4],
  ["/formrecognizer/v2.1/layout:analyze", V4],
  ["/elsewhere/documentModels/ab:analyze", V4],
];
for (const [path, query] of unreadable)
  test(`${path.slice(0, 80)}${query} is no submission`, () =>
    assert.notEqual(readAnalyzeTarget(path, query).kind, "ok"));

test("a result's address reads back as what it names, for any model and id [20.F2]", () => {
  const family = fc.constantFrom("documentintelligence" as const, "formrecognizer" as const);
  const modelId = fc.stringMatching(/^[a-zA-Z0-9][a-zA-Z0-9._~-]{1,63}$/);
  fc.assert(
    fc.property(family, modelId, fc.uuid(), (of, model, resultId) => {
      const target = { family: of, modelId: model, apiVersion: "2023-07-31" };
      const [path = "", query = ""] = resultPath(target, resultId).split("?");
      assert.deepEqual(readResultTarget(path, `?${query}`), { kind: "ok", value: { ...target, resultId } });
      assert.equal(operationIdOf(`http://10.0.0.1:5000${path}?${query}`, target), resultId);
    }),
  );
});

const OWN = resultPath(TARGET, "0b9d-1");
const locations: readonly (readonly [location: string, id: string | undefined])[] = [
  [`http://container:5000${OWN}`, "0b9d-1"],
  // What a load balancer or a path in front of the container makes of it.
  [`https://evil.example/prefix${OWN}`, "0b9d-1"],
  [OWN, "0b9d-1"],
  ["http://container:5000/admin/secrets", undefined],
  ["http://[", undefined],
  ["", undefined],
  [`file://${OWN}`, undefined],
  [OWN.replace("prebuilt-read", "prebuilt-layout"), undefined],
  [OWN.replace("documentintelligence", "formrecognizer"), undefined],
  [OWN.replace("0b9d-1", "a%2Fb"), undefined],
  [OWN.replace("0b9d-1", ""), undefined],
  [OWN.replace("0b9d-1", "../../x"), undefined],
];
for (const [location, id] of locations)
  test(`of the Operation-Location ${location.slice(0, 80)} only an id of the same model is taken [20.F2]`, () =>
    assert.equal(operationIdOf(location, TARGET), id));

test("no Operation-Location, whatever it holds, leads to another path than the operation's own", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.webUrl(),
        fc.string().map((text) => OWN + text),
      ),
      (location) => {
        const id = operationIdOf(location, TARGET);
        if (id === undefined) return;
        const url = new URL(resultPath(TARGET, id), "http://h");
        assert.equal(url.pathname, `/documentintelligence/documentModels/prebuilt-read/analyzeResults/${id}`);
      },
    ),
  );
});
