import assert from "node:assert/strict";
import { test } from "node:test";
import { REQUEST_CLASSES } from "../../contract/request-class.ts";
import { parseMetricsText, type Sample } from "../telemetry/prometheus-text.ts";
import type { EngineName } from "../../contract/gateway-config.ts";
import { NO_LOAD, type EngineErrorKind, type EngineLoad, type HealthReading } from "./adapter.ts";
import { adapterFor, ENGINES } from "./engines.ts";

function samplesOf(page: string): readonly Sample[] {
  const parsed = parseMetricsText(page);
  assert.ok(parsed.kind === "parsed");
  return parsed.samples;
}

const load = (engine: EngineName, page: string): EngineLoad => adapterFor(engine).readLoad(samplesOf(page));

const VLLM_NEW = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 971.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.795e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 256.0
vllm:generation_tokens_total{engine="0",model_name="m"} 104.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 102.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 102.0
`;
const VLLM_OLD = `vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 10
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="m"} 5
`;
const SGLANG = `sglang:num_running_reqs{model_name="m",tp_rank="0",pp_rank="0",dp_rank="0"} 3
sglang:num_running_reqs{model_name="m",tp_rank="1",pp_rank="0",dp_rank="0"} 3
sglang:num_running_reqs{model_name="m",tp_rank="0",pp_rank="0",dp_rank="1"} 4
sglang:num_queue_reqs{model_name="m",tp_rank="0",dp_rank="0",priority=""} 5
sglang:num_queue_reqs{model_name="m",tp_rank="0",dp_rank="0",priority="7"} 2
sglang:num_queue_reqs{model_name="m",tp_rank="0",dp_rank="0",priority="9"} 3
sglang:token_usage{model_name="m",tp_rank="0",dp_rank="0"} 0.3
sglang:token_usage{model_name="m",tp_rank="0",dp_rank="1"} 0.7
sglang:generation_tokens_total{model_name="m"} 1e6
sglang:prompt_tokens_total{model_name="m"} 300
sglang:cached_tokens_total{model_name="m",cache_source="device"} 100
sglang:cached_tokens_total{model_name="m",cache_source="host"} 20
`;
const LLAMA = `llamacpp:prompt_tokens_total 68
llamacpp:prompt_tokens_cached_total 32
llamacpp:tokens_predicted_total 1.23457e+06
llamacpp:n_decode_total 5
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
`;
const TEI = `te_queue_size 3
te_request_count{method="single"} 10
te_batch_next_size_count 8
`;

const loads: { name: string; engine: EngineName; page: string; expect: EngineLoad }[] = [
  {
    name: "vllm",
    engine: "vllm",
    page: VLLM_NEW,
    expect: { running: 2, waiting: 4, kvUse: 0.25, steps: 102, tokens: 104, prefixQueries: 971, prefixHits: 256 },
  },
  {
    name: "vllm in its old names",
    engine: "vllm",
    page: VLLM_OLD,
    expect: { ...NO_LOAD, kvUse: 0.5, prefixQueries: 10, prefixHits: 5 },
  },
  {
    name: "vllm in old and new names is not counted twice",
    engine: "vllm",
    page: VLLM_NEW + VLLM_OLD,
    expect: { running: 2, waiting: 4, kvUse: 0.25, steps: 102, tokens: 104, prefixQueries: 971, prefixHits: 256 },
  },
  {
    name: "vllm as OpenMetrics",
    engine: "vllm",
    page: `${VLLM_NEW.replaceAll("vllm:", "vllm_")}# EOF\n`,
    expect: { running: 2, waiting: 4, kvUse: 0.25, steps: 102, tokens: 104, prefixQueries: 971, prefixHits: 256 },
  },
  {
    name: "vllm with two data-parallel ranks, the series of one repeated",
    engine: "vllm",
    page: 'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 2\nvllm:num_requests_running{engine="0"} 5\nvllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.9\n',
    expect: { ...NO_LOAD, running: 7, kvUse: 0.9 },
  },
  {
    name: "a value that is no number is unknown",
    engine: "vllm",
    page: 'vllm:num_requests_running{engine="0"} NaN\nvllm:kv_cache_usage_perc{engine="0"} +Inf\n',
    expect: NO_LOAD,
  },
  {
    name: "nor is a count below zero one",
    engine: "vllm",
    page: 'vllm:num_requests_running{engine="0"} -1\nvllm:num_requests_waiting{engine="0"} 0\nvllm:kv_cache_usage_perc{engine="0"} -1\n',
    expect: { ...NO_LOAD, waiting: 0 },
  },
  {
    name: "sglang, ranks of one replica once, priorities once",
    engine: "sglang",
    page: SGLANG,
    expect: { running: 7, waiting: 5, kvUse: 0.7, steps: undefined, tokens: 1e6, prefixQueries: 300, prefixHits: 120 },
  },
  {
    name: "sglang with single priorities alone",
    engine: "sglang",
    page: 'sglang:num_queue_reqs{priority="1"} 2\nsglang:num_queue_reqs{priority="2"} 3\n',
    expect: { ...NO_LOAD, waiting: 5 },
  },
  {
    name: "llama.cpp",
    engine: "llama.cpp",
    page: LLAMA,
    expect: {
      running: 2,
      waiting: 1,
      kvUse: undefined,
      steps: 5,
      tokens: 1_234_570,
      prefixQueries: 100,
      prefixHits: 32,
    },
  },
  {
    name: "an old llama.cpp",
    engine: "llama.cpp",
    page: "llamacpp:kv_cache_usage_ratio 0.4\nllamacpp:prompt_tokens_total 68\n",
    expect: { ...NO_LOAD, kvUse: 0.4 },
  },
  { name: "tei", engine: "tei", page: TEI, expect: { ...NO_LOAD, waiting: 3 } },
];
for (const row of loads)
  test(`an engine's load is read: ${row.name} [10.R2]`, () => assert.deepEqual(load(row.engine, row.page), row.expect));

test("what a page does not name is unknown, never zero and never from another engine's names [10.R2]", () => {
  const own: Partial<Record<EngineName, string>> = {
    vllm: VLLM_NEW + VLLM_OLD,
    sglang: SGLANG,
    "llama.cpp": LLAMA,
    tei: TEI,
  };
  for (const adapter of ENGINES) {
    const { name } = adapter;
    assert.deepEqual(adapter.readLoad([]), NO_LOAD, name);
    for (const [other, page] of Object.entries(own))
      if (other !== name) assert.deepEqual(adapter.readLoad(samplesOf(page)), NO_LOAD, `${name} reads ${other}`);
  }
});

const healths: { engine: EngineName; status: number; body: string; expect: HealthReading }[] = [
  { engine: "vllm", status: 200, body: "", expect: "healthy" },
  { engine: "vllm", status: 503, body: "", expect: "unhealthy" },
  { engine: "sglang", status: 503, body: "", expect: "unhealthy" },
  { engine: "llama.cpp", status: 200, body: '{"status":"ok"}', expect: "healthy" },
  {
    engine: "llama.cpp",
    status: 503,
    body: '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}',
    expect: "loading",
  },
  { engine: "llama.cpp", status: 503, body: "", expect: "unhealthy" },
  { engine: "tei", status: 503, body: '{"error":"unhealthy","error_type":"Unhealthy"}', expect: "unhealthy" },
  { engine: "ollama", status: 200, body: "Ollama is running", expect: "healthy" },
  { engine: "ollama", status: 200, body: "<html>", expect: "noPage" },
  { engine: "generic", status: 204, body: "", expect: "healthy" },
  { engine: "generic", status: 404, body: "", expect: "noPage" },
  { engine: "generic", status: 405, body: "", expect: "noPage" },
  { engine: "generic", status: 401, body: "", expect: "noPage" },
  { engine: "generic", status: 500, body: "", expect: "unhealthy" },
];
test("health pages are read as each engine means them", () => {
  for (const row of healths)
    assert.equal(adapterFor(row.engine).readHealth(row.status, row.body), row.expect, JSON.stringify(row));
});

test("the probe that generates a token is asked seldom and given time [10.R5b]", () => {
  const health = adapterFor("sglang").health;
  assert.ok(health !== null && health.timeoutMs >= 25_000 && health.everyMs >= 30_000);
});

const DEAD =
  '{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}';
const errors: { engine: EngineName; status: number; body: string; expect: EngineErrorKind }[] = [
  { engine: "vllm", status: 500, body: DEAD, expect: "engineDead" },
  {
    engine: "vllm",
    status: 500,
    body: DEAD.replace(/EngineCore[^"]*/, "cannot schedule new futures after shutdown"),
    expect: "shuttingDown",
  },
  { engine: "vllm", status: 500, body: '{"error":{"message":"oops"}}', expect: "engineFault" },
  {
    engine: "vllm",
    status: 400,
    body: '{"error":{"message":"EngineCore encountered an issue"}}',
    expect: "clientFault",
  },
  {
    engine: "sglang",
    status: 503,
    body: '{"object":"error","message":"The request queue is full.","code":503}',
    expect: "overloaded",
  },
  { engine: "sglang", status: 500, body: "", expect: "engineFault" },
  { engine: "llama.cpp", status: 503, body: '{"error":{"message":"Loading model","code":503}}', expect: "overloaded" },
  { engine: "llama.cpp", status: 501, body: '{"error":{"type":"not_supported_error"}}', expect: "clientFault" },
  { engine: "tei", status: 424, body: '{"error":"x","error_type":"Backend"}', expect: "engineFault" },
  { engine: "tei", status: 429, body: '{"error":"x","error_type":"Overloaded"}', expect: "overloaded" },
  {
    engine: "ollama",
    status: 503,
    body: '{"error":"server busy, please try again.  maximum pending requests exceeded"}',
    expect: "overloaded",
  },
  { engine: "generic", status: 503, body: "", expect: "engineFault" },
  { engine: "generic", status: 502, body: "<html>", expect: "engineFault" },
  { engine: "generic", status: 429, body: '{"error":{"code":"insufficient_quota"}}', expect: "noMoney" },
  { engine: "generic", status: 429, body: '{"error":{"code":"rate_limit_exceeded"}}', expect: "overloaded" },
];
test("error answers are told apart by what they mean for the next try [10.R4b]", () => {
  for (const row of errors)
    assert.equal(adapterFor(row.engine).classifyError(row.status, row.body), row.expect, JSON.stringify(row));
});

test("a client's mistake is no sign against any engine", () => {
  for (const adapter of ENGINES) {
    for (const status of [400, 401, 403, 404, 405, 413, 415, 422])
      assert.equal(
        adapter.classifyError(status, "EngineCore encountered an issue"),
        "clientFault",
        `${adapter.name} ${status}`,
      );
    for (const status of [408, 429, 529])
      assert.equal(adapter.classifyError(status, ""), "overloaded", `${adapter.name} ${status}`);
  }
});

test("classes become the engine's own priority in the engine's own direction [10.X7]", () => {
  const values = (engine: EngineName): (number | undefined)[] =>
    REQUEST_CLASSES.map((requestClass) => adapterFor(engine).priorityField(requestClass)?.value);
  const [interactive = 0, system = 0, batch = 0] = values("vllm");
  assert.ok(interactive < system && system < batch);
  const [high = 0, middle = 0, low = 0] = values("sglang");
  assert.ok(high > middle && middle > low);
  for (const engine of ["llama.cpp", "tei", "ollama", "generic"] as const)
    assert.deepEqual(values(engine), [undefined, undefined, undefined]);
});

test("the engine that works on for a client that is gone is known, and its busy count is read [10.A5b]", () => {
  assert.deepEqual(adapterFor("llama.cpp").stopsAbandoned, { streamed: true, nonStreamed: false });
  // An analysis, or a workflow, goes on without its submitter: that is the protocol.
  const goOn = ["document-intelligence", "comfyui"] as const;
  for (const name of goOn) assert.deepEqual(adapterFor(name).stopsAbandoned, { streamed: false, nonStreamed: false });
  for (const { name, stopsAbandoned } of ENGINES)
    if (name !== "llama.cpp" && !goOn.some((other) => other === name))
      assert.deepEqual(stopsAbandoned, { streamed: true, nonStreamed: true });
  const read = (body: string): number | undefined => adapterFor("llama.cpp").busyProbe?.read(body);
  assert.equal(read('[{"id":0,"is_processing":true},{"id":1,"is_processing":false},{"id":2,"is_processing":true}]'), 2);
  assert.equal(read("[]"), 0);
  for (const body of ["", '{"error":{"code":501}}', '[{"id":0}]', "[1]"]) assert.equal(read(body), undefined, body);
  const readLoads = (body: string): number | undefined => adapterFor("sglang").busyProbe?.read(body);
  assert.equal(readLoads('{"loads":[{"dp_rank":0,"num_running_reqs":2},{"dp_rank":1,"num_running_reqs":3}]}'), 5);
  assert.equal(readLoads('[{"num_running_reqs":1}]'), 1);
  assert.equal(readLoads('{"num_running_reqs":4}'), 4);
  assert.equal(readLoads("{}"), undefined);
});

test("routes that an engine has under another path are mapped, and others stay", () => {
  const path = (engine: EngineName, route: string): string => adapterFor(engine).enginePath(route);
  assert.equal(path("vllm", "/v1/tokenize"), "/tokenize");
  assert.equal(path("vllm", "/v1/classify?x=/v1/tokenize"), "/classify?x=/v1/tokenize");
  assert.equal(path("vllm", "/v1/rerank"), "/v1/rerank");
  assert.equal(path("llama.cpp", "/v1/detokenize"), "/detokenize");
  assert.equal(path("tei", "/v1/rerank"), "/rerank");
  assert.equal(path("tei", "/v1/detokenize"), "/decode");
  for (const adapter of ENGINES)
    for (const route of ["/v1/chat/completions", "/v1/embeddings?a=b", "constructor"])
      assert.equal(adapter.enginePath(route), route);
});

test("models are read with their adapters and aliases [10.R1]", () => {
  const models = (engine: EngineName, body: string): readonly string[] | undefined =>
    adapterFor(engine).readModels(body);
  assert.deepEqual(
    models("vllm", '{"object":"list","data":[{"id":"base","parent":null},{"id":"my-lora","parent":"base"},{"id":7}]}'),
    ["base", "my-lora"],
  );
  assert.deepEqual(
    models("llama.cpp", '{"models":[{"name":"a"}],"data":[{"id":"a","aliases":["a","b"],"owned_by":"llamacpp"}]}'),
    ["a", "b"],
  );
  assert.deepEqual(models("tei", '{"model_id":"org/x","served_model_name":"x","max_client_batch_size":32}'), [
    "x",
    "org/x",
  ]);
  assert.deepEqual(models("generic", '{"data":[]}'), []);
  for (const adapter of ENGINES)
    for (const body of ["", "null", "[]", '{"error":"Unauthorized"}'])
      assert.equal(adapter.readModels(body), undefined, `${adapter.name} ${body}`);
});

test("a running engine is told by its own mark, and by no other engine's", () => {
  const answers: Partial<Record<EngineName, string>> = {
    vllm: '{"object":"list","data":[{"id":"m","owned_by":"vllm"}]}',
    sglang: '{"object":"list","data":[{"id":"m","owned_by":"sglang"}]}',
    "llama.cpp": '{"data":[{"id":"m","owned_by":"llamacpp"}]}',
    tei: '{"model_id":"m","max_client_batch_size":32}',
    ollama: "Ollama is running",
  };
  for (const { name, detect } of ENGINES) {
    for (const [other, body] of Object.entries(answers)) {
      assert.equal(detect?.matches(200, body, {}) ?? false, name === other, `${name} on ${other}`);
      assert.equal(detect?.matches(404, body, {}) ?? false, false);
    }
  }
});
