import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { RawServer } from "../../src/testing/raw-server.ts";
import { aChat, ask } from "./support/raw-answers.ts";
import { aCompletion, jsonAnswer } from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

const NAMES = [
  "org/model",
  "org/model:Q4",
  "/models/x",
  "modèle",
  "a b",
  "100%",
  "..",
  "模型/7b",
  "m?x=1",
  "m#1",
  "m+1",
];
let engine: RawServer;
let gateway: TestGateway;

before(async () => {
  engine = await RawServer.listen({ onCall: ({ socket }) => void socket.write(jsonAnswer(aCompletion())) });
  gateway = await startTestGateway({
    upstreams: [
      {
        id: "raw",
        engine: "generic",
        health: "passive",
        models: NAMES,
        slots: 4,
        endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
      },
    ],
  });
});
after(async () => {
  await gateway.stop();
  await engine[Symbol.asyncDispose]();
});
const get = (path: string) => ask(gateway, { method: "GET", path, body: null });

test("every model that is listed can be read by its name and asked by it, whatever signs the name holds", async () => {
  const listed = (JSON.parse((await get("/v1/models")).text) as { data: { id: string }[] }).data.map(
    (model) => model.id,
  );
  assert.deepEqual(listed.toSorted(), NAMES.toSorted());
  for (const name of NAMES) {
    const encoded = await get(`/v1/models/${encodeURIComponent(name)}`);
    // A dot segment is a way around the routes in any spelling, so this one is only reached by the list.
    if (name === "..") assert.ok(encoded.status === 400 || (JSON.parse(encoded.text) as { id: string }).id === name);
    else assert.equal((JSON.parse(encoded.text) as { id: string }).id, name, `${name}: ${encoded.text}`);
    const got = await ask(gateway, { body: { ...aChat({ stream: false }), model: name } });
    assert.equal(got.status, 200, name);
    assert.equal((JSON.parse(engine.calls.at(-1)?.body.toString() ?? "") as { model: string }).model, name);
  }
  for (const raw of ["org/model", "org/model:Q4"])
    assert.equal((JSON.parse((await get(`/v1/models/${raw}`)).text) as { id: string }).id, raw);
});

test("an unknown model is another error than an unknown route, and no name leads out of the routes", async () => {
  const code = (text: string): string => (JSON.parse(text) as { error: { code: string } }).error.code;
  assert.deepEqual(
    [(await get("/v1/models/none")).status, code((await get("/v1/models/none")).text)],
    [404, "MODEL_UNKNOWN"],
  );
  assert.equal(code((await get("/nothing")).text), "ROUTE_UNKNOWN");
  for (const path of [
    "/v1/models/../../health",
    "/v1/models/..%2f..%2fhealth",
    "/v1/models/%2e%2e/admin/keys",
    "/v1/models/a%00b",
    "/v1/models//x",
  ]) {
    const got = await get(path);
    assert.ok([400, 404].includes(got.status), `${path}: ${got.status}`);
    assert.ok(!got.text.includes("endpoints"));
  }
});
