import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { parseOpenMetrics, parsePrometheus } from "../../src/testing/exposition-parser.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

/** Names that an operator may write into the file, each with something that a page, a log or a terminal may choke on. */
const NAMES = [
  "org/model",
  "org/model:Q4",
  "/models/x",
  "modèle",
  "a b",
  "..%2f",
  'a"b\\c\n}',
  "<script>alert(1)</script>",
  "\u001b]0;owned\u0007",
  "模型-😀",
  "x".repeat(256),
  "100%",
  "a//b",
  "a?b#c",
];

let engine: SimEngine;
let gateway: TestGateway;
before(async () => {
  engine = await anEngine({ models: NAMES, slots: 8 });
  gateway = await startTestGateway({
    file: { metrics: { public: false } },
    upstreams: [{ id: "u", engine: "vllm", models: NAMES, slots: 8, endpoints: [{ url: engine.url }] }],
  });
});
after(async () => {
  await gateway.stop();
  await engine.close();
});

const chat = async (model: unknown): Promise<Response> =>
  fetch(`${gateway.url}/v1/chat/completions`, {
    method: "POST",
    headers: { ...gateway.auth, "content-type": "application/json" },
    body: JSON.stringify({ model, max_tokens: 1, messages: [{ role: "user", content: "hi" }] }),
  });

/** What is looked at of the pages that are asked for. */
interface Page {
  readonly id?: string;
  readonly data?: readonly { readonly id: string }[];
  readonly error?: { readonly code: string };
}

async function getJson(path: string): Promise<{ status: number; json: Page }> {
  const answer = await fetch(gateway.url + path, { headers: gateway.auth });
  return { status: answer.status, json: (await answer.json()) as Page };
}

async function page(accept = "text/plain"): Promise<string> {
  const answer = await fetch(`${gateway.url}/metrics`, {
    headers: { authorization: `Bearer ${gateway.keys.metrics}`, accept },
  });
  assert.equal(answer.status, 200);
  return answer.text();
}
const seriesOf = (text: string): string[] => text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));

test("each listed model, whatever its name, is found by its id, encoded or raw where a target can hold it, and answers a chat under it; an unknown one is 404 MODEL_UNKNOWN, told apart from an unknown route [80.D6 80.D36]", async () => {
  const { json: list } = await getJson("/v1/models");
  assert.deepEqual(list.data?.map((card) => card.id).toSorted(), NAMES.toSorted());
  const raw = async (target: string): Promise<string> => {
    using client = await RawClient.connect(gateway.port);
    await client.write(
      `GET ${target} HTTP/1.1\r\nHost: g\r\nAuthorization: ${gateway.auth["authorization"]}\r\nConnection: close\r\n\r\n`,
    );
    return (await client.readToEnd()).toString();
  };
  for (const { id } of list.data ?? []) {
    // A control character in a path is refused on every route; such a model is still listed and served.
    if (!/\p{Cc}/u.test(id)) {
      assert.equal((await getJson(`/v1/models/${encodeURIComponent(id)}`)).json.id, id);
    }
    if (/^[a-z/:4Q]+$/.test(id)) assert.match(await raw(`/v1/models/${id}`), new RegExp(`"id":"${id}"`));
    const before = engine.ledger().opened;
    const answer = await chat(id);
    assert.equal(answer.status, 200, `${id}: ${await answer.text()}`);
    assert.equal(engine.ledger().opened, before + 1, id);
  }
  for (const [path, code] of [
    ["/v1/models/org%2Fabsent", "MODEL_UNKNOWN"],
    ["/v2/models/absent", "ROUTE_UNKNOWN"],
  ] as const) {
    const { status, json } = await getJson(path);
    assert.deepEqual([status, json.error?.code], [404, code]);
  }
  for (const target of ["/v1/models/../../admin/keys", "/v1/models/..%2f..%2fadmin%2fkeys", "/v1/models/%2e%2e/x"])
    assert.match(await raw(target), /^HTTP\/1\.1 400 /, target);
});

test("a thousand names, ids and agents that clients make up leave the metrics page as long as it was, valid, and without any of them [80.D38 10.O2]", async () => {
  await chat("org/model");
  await (await chat("made-up-before")).text();
  await eventually("the first are counted", page, (text) => text.includes("MODEL_UNKNOWN"));
  const before = seriesOf(await page()).length;
  for (let round = 0; round < 20; round++) {
    await Promise.all(
      Array.from({ length: 50 }, async (_, at) => {
        const name = `made-up-${round}-${at}-"\\\n}😀${"y".repeat(at === 0 ? 10_000 : 0)}`;
        const answer = await chat(name);
        assert.equal(answer.status, 404);
        await answer.text();
      }),
    );
    for (const [path, headers] of [
      [`/v1/made-up-${round}`, {}],
      [`/nothing-${round}`, {}],
      ["/v1/models", { "user-agent": `made-up-${round}`, "x-request-id": `made-up-${round}` }],
    ] as const)
      await (await fetch(gateway.url + path, { headers: { ...gateway.auth, ...headers } })).text();
  }
  const text = await page();
  const after = seriesOf(text);
  assert.ok(after.length - before <= 5, `${before} then ${after.length}`);
  assert.ok(after.length <= 2_000);
  for (const word of ["made-up", "nothing-", "test-client", "test-admin", "CANARY", "org/model", "script", "req-"])
    assert.ok(!text.includes(word), word);
  // Both throw on the first line that is not by the rules.
  assert.ok(parsePrometheus(text).length > 10);
  assert.ok(parseOpenMetrics(await page("application/openmetrics-text")).length > 10);
});

test("the metrics page needs a key with the role for it where it is not on loopback only, and says nothing to others [80.D38 60.K2]", async () => {
  for (const [key, status] of [
    [undefined, 401],
    ["wrong", 401],
    [gateway.keys.client, 403],
    [gateway.keys.agent, 403],
    [gateway.keys.metrics, 200],
    [gateway.keys.operator, 200],
  ] as const) {
    const answer = await fetch(`${gateway.url}/metrics`, {
      headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
    });
    assert.equal(answer.status, status);
    if (status !== 200) assert.ok(!(await answer.text()).includes("yardmaster_"));
  }
  const open = await startTestGateway({ upstreams: [] });
  assert.equal((await fetch(`${open.url}/metrics`)).status, 200, "on loopback it is open unless told otherwise");
  await open.stop();
});

test("hostile names are data wherever they are shown: JSON that is not sniffed, logs of one line each, no control characters [80.D36 80.D16]", async () => {
  for (const path of ["/health", "/v1/models", "/admin/audit?limit=1000"]) {
    const answer = await fetch(gateway.url + path, { headers: { authorization: `Bearer ${gateway.keys.operator}` } });
    assert.match(answer.headers.get("content-type") ?? "", /^application\/json/);
    assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
    const text = await answer.text();
    // oxlint-disable-next-line no-control-regex -- control characters are what it looks for
    assert.doesNotMatch(text, /[\u0000-\u0009\u000b-\u001f\u007f]/, path);
    assert.doesNotThrow(() => JSON.parse(text), path);
  }
  for (const line of gateway.logLines) assert.doesNotThrow(() => JSON.parse(line), line);
});

test("a request of a hundred bytes costs one slot and one engine call, and what it asks of the engine ends with its deadline [80.D37]", async () => {
  const small = await startTestGateway({
    upstreams: [
      {
        id: "u",
        engine: "vllm",
        models: ["org/model"],
        slots: 2,
        timeouts: { total_s: 0.5 },
        retry: { attempts: 0 },
        endpoints: [{ url: engine.url }],
      },
    ],
  });
  try {
    engine.script({ match: { model: "org/model" }, do: { hangAfterHead: true } });
    const before = engine.ledger().opened;
    const answers = await Promise.all(
      [{ n: 1_000_000 }, { max_tokens: 1e12 }].map((more) =>
        fetch(`${small.url}/v1/chat/completions`, {
          method: "POST",
          headers: { ...small.auth, "content-type": "application/json" },
          body: JSON.stringify({ model: "org/model", messages: [{ role: "user", content: "hi" }], ...more }),
        }).then((answer) => answer.status),
      ),
    );
    assert.ok(
      answers.every((status) => status >= 400),
      answers.join(),
    );
    assert.ok(engine.ledger().opened <= before + 2);
    await eventually(
      "slots are free",
      () => small.metric('yardmaster_in_flight{upstream="u",class="interactive"}'),
      (used) => used === 0,
    );
  } finally {
    engine.clearScript();
    await small.stop();
  }
});
