import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  providerOf,
  klingSetup,
  minimaxSetup,
  minimaxTasksSetup,
  openaiSetup,
  tasksSetup,
} from "../../../testing/cloud/cloud-setups.ts";
import { readId, readMembers, type CloudAnswer, type CloudProtocol } from "./cloud-call.ts";
import { httpTemplate } from "./http-template.ts";
import { kling } from "./kling.ts";
import { minimaxTasks } from "./minimax-tasks.ts";
import { minimaxFiles } from "./minimax.ts";
import { openai } from "./openai.ts";
import type { ProviderWork } from "./provider-work.ts";

const settingsOf = (setup: typeof klingSetup) => providerOf(setup.file("https://cloud.example"));
const template = settingsOf(tasksSetup).template;
assert.ok(template !== null);
const PROTOCOLS: Readonly<Record<string, CloudProtocol>> = {
  minimax: minimaxFiles(settingsOf(minimaxSetup)),
  minimaxTasks: minimaxTasks(settingsOf(minimaxTasksSetup)),
  kling: kling(settingsOf(klingSetup)),
  openai: openai(settingsOf(openaiSetup)),
  http: httpTemplate(settingsOf(tasksSetup), template),
};

const aWork = (body: unknown): ProviderWork => ({
  jobId: "j",
  idempotencyKey: "k",
  path: "/v1/chat/completions",
  body,
  maxMicros: 1,
});
const anAnswer = (status: number, body: string): CloudAnswer => ({
  status,
  contentType: "application/json",
  retryAfterMs: undefined,
  body: Buffer.from(body),
});
const sentBy = (name: string, body: unknown): Record<string, unknown> => {
  const plan = PROTOCOLS[name]?.plan(aWork(body));
  assert.equal(plan?.kind, "ok", JSON.stringify(plan));
  return JSON.parse((plan.kind === "ok" ? plan.call.body : null) ?? "") as Record<string, unknown>;
};
const call = { method: "POST", path: "/v1/videos/text2video", headers: {}, body: null };

test("each cloud gets its own words: MiniMax a number of seconds, Kling digits and the job's key, a file none [50.V6]", () => {
  const asked = { prompt: "a train", duration: 10, image: "https://img.example/1.png", resolution: "768P", seed: 4 };
  assert.deepEqual(sentBy("minimax", asked), {
    resolution: "768P",
    model: "MiniMax-Hailuo-02",
    prompt: "a train",
    duration: 10,
  });
  assert.deepEqual(sentBy("minimaxTasks", asked), {
    resolution: "768P",
    model: "MiniMax-H3",
    content: [{ type: "text", text: "a train" }],
    duration: 10,
  });
  assert.deepEqual(sentBy("kling", asked), {
    image: "https://img.example/1.png",
    model_name: "kling-v2",
    prompt: "a train",
    duration: "10",
    external_task_id: "k",
  });
  const plan = PROTOCOLS["kling"]?.plan(aWork(asked));
  assert.equal(plan?.kind === "ok" && plan.call.path, "/v1/videos/image2video");
});

test("seconds that a job leaves open are sent all the same, so that what is paid is what was reserved [50.V6]", () => {
  assert.equal(sentBy("minimax", { prompt: "x" })["duration"], 6);
  assert.equal(sentBy("minimaxTasks", { prompt: "x" })["duration"], 6);
  assert.equal(sentBy("kling", { prompt: "x" })["duration"], "5");
});

test("work that a place has no use for has no price and is not sent [50.V6]", () => {
  const rows: readonly (readonly [string, unknown])[] = [
    ["minimax", { prompt: { "1": {} } }],
    ["minimax", { prompt: "x", duration: 7 }],
    ["minimax", { prompt: "x", duration: "6.5" }],
    ["minimax", { prompt: "x", duration: -6 }],
    ["minimaxTasks", { prompt: "x", duration: 16 }],
    ["kling", { prompt: "x", duration: 6 }],
    ["kling", { overflow: "yes", prompt: "x" }],
    ["kling", "a train"],
    ["openai", ["x"]],
    ["http", null],
  ];
  for (const [name, body] of rows)
    assert.equal(PROTOCOLS[name]?.plan(aWork(body)).kind, "unfit", `${name} ${JSON.stringify(body)}`);
});

test("a chat whose answer may be of any length has no price [50.V6]", () => {
  const rows: readonly (readonly [Record<string, unknown>, string])[] = [
    [{ messages: [] }, "unpriced"],
    [{ messages: [], max_tokens: "100" }, "unpriced"],
    [{ messages: [], max_tokens: 100 }, "priced"],
    [{ messages: [], max_tokens: 100, n: 0 }, "unpriced"],
    [{ messages: [], max_tokens: 100, max_completion_tokens: 1e9 }, "priced"],
    [{ messages: [], max_tokens: 100, max_completion_tokens: "all" }, "unpriced"],
    [{ messages: [], max_tokens: 100, best_of: "many" }, "unpriced"],
    [{ messages: [], max_tokens: 100, web_search_options: {} }, "unpriced"],
    [{ messages: [], max_tokens: 100, tools: [{ type: "web_search" }] }, "unpriced"],
    [{ messages: [], max_tokens: 100, modalities: ["text", "audio"] }, "unpriced"],
    [{ messages: [], max_tokens: 100, modalities: ["text"] }, "priced"],
    [{ messages: [], max_tokens: 100, audio: { voice: "a" } }, "unpriced"],
    [{ messages: [], max_tokens: 100, service_tier: "priority" }, "unpriced"],
    [{ messages: [], max_tokens: 100, service_tier: "default" }, "priced"],
    [{ messages: [], max_tokens: 100, models: ["dearer"] }, "unpriced"],
    [{ messages: [], max_tokens: 100, plugins: [{ id: "web" }] }, "unpriced"],
    [{ input: "x", max_output_tokens: 100, previous_response_id: "resp_1" }, "unpriced"],
    [{ messages: [], max_tokens: 100, tools: [{ type: "function" }] }, "priced"],
    [{ messages: [{ content: [{ type: "text", text: "x" }] }], max_tokens: 100 }, "priced"],
    [{ messages: [{ content: [{ type: "image_url" }] }], max_tokens: 100 }, "unpriced"],
    [{ messages: [{ content: [{ type: "input_audio" }] }], max_tokens: 100 }, "unpriced"],
    [{ input: "x" }, "unpriced"],
  ];
  for (const [body, kind] of rows) {
    const plan = PROTOCOLS["openai"]?.plan(aWork(body));
    assert.equal(plan?.kind === "ok" && plan.quote.kind, kind, JSON.stringify(body));
  }
  const micros = (body: Record<string, unknown>): number => {
    const plan = PROTOCOLS["openai"]?.plan(aWork(body));
    return plan?.kind === "ok" && plan.quote.kind === "priced" ? plan.quote.micros : Number.NaN;
  };
  const usual = { messages: [], max_tokens: 1_000 };
  assert.ok(
    micros({ ...usual, max_completion_tokens: 100_000 }) > 90 * micros(usual),
    "a place may go by the larger one",
  );
  assert.ok(micros({ ...usual, best_of: 10 }) > 5 * micros(usual));
});

test("a place's key opens what a model is asked for and nothing else, and by tokens only what costs no more than tokens [50.V6 80.C46]", () => {
  const settings = settingsOf(openaiSetup);
  const kindOf = (path: string, price: typeof settings.price): string =>
    openai({ ...settings, price }).plan({ ...aWork({ input: "x", messages: [], max_tokens: 1 }), path }).kind;
  const byCall = { unit: "call", micros: 1, currency: "EUR" } as const;
  for (const path of ["/v1/chat/completions", "/v1/embeddings", "/v1/responses?x=1"])
    for (const price of [settings.price, byCall, null]) assert.equal(kindOf(path, price), "ok", path);
  for (const path of ["/v1/images/generations", "/v1/audio/speech"])
    assert.deepEqual([kindOf(path, settings.price), kindOf(path, byCall), kindOf(path, null)], ["unfit", "ok", "ok"]);
  for (const path of [
    "/v1/files",
    "/v1/fine_tuning/jobs",
    "/v1/organization/projects",
    "/v1/chat/completions/../files",
    "/",
    "",
  ])
    for (const price of [settings.price, byCall, null]) assert.equal(kindOf(path, price), "unfit", path);
});

test("a file's id of 64 bits keeps its digits, as a number and as a text [50.V6]", () => {
  for (const id of ["176844028768320331", '"176844028768320331"']) {
    const answer = anAnswer(200, `{"status":"Success","file_id":${id},"base_resp":{"status_code":0}}`);
    assert.deepEqual(PROTOCOLS["minimax"]?.readLook(answer, "t"), { kind: "succeeded", result: "176844028768320331" });
  }
});

test("Kling's 429 is told apart: an empty account is refused for good, a limit of the rate passes [50.V6]", () => {
  const rows: readonly (readonly [number, string])[] = [
    [1100, "refused"],
    [1101, "refused"],
    [1102, "refused"],
    [1302, "unavailable"],
    [1303, "unavailable"],
    [1399, "unavailable"],
  ];
  for (const [code, kind] of rows) {
    const answer = anAnswer(429, JSON.stringify({ code, message: "no" }));
    assert.equal(PROTOCOLS["kling"]?.readSubmission(answer, call).kind, kind, String(code));
  }
});

test("a place's id is a path step and nothing else [50.V6]", () => {
  for (const name of ["minimax", "minimaxTasks", "kling", "http"]) {
    const path = PROTOCOLS[name]?.look("../../admin?x=1#y").path ?? "";
    const url = new URL(path, "https://cloud.example");
    assert.ok(!url.pathname.startsWith("/admin") && url.hash === "", `${name}: ${path}`);
  }
  assert.equal(readId(".."), undefined);
  assert.equal(readId(""), undefined);
  assert.equal(readId("a b"), undefined);
  assert.equal(readId("x".repeat(513)), undefined);
  assert.equal(readId(1.5), undefined);
  assert.equal(readId(12), "12");
});

test("whatever a place answers, no protocol throws, and only its own words are a task, a success or a refusal [50.V6]", () => {
  const words = fc.constantFrom(
    "task_id",
    "code",
    "status",
    "data",
    "error",
    "base_resp",
    "status_code",
    "id",
    "state",
  );
  const value = fc.letrec((tie) => ({
    any: fc.oneof(
      { depthSize: "small" },
      fc.constantFrom<unknown>(0, 1004, -1, null, "", "Success", "succeed", "x", true, [], 1e20),
      fc.dictionary(words, tie("any"), { maxKeys: 4 }),
    ),
  })).any;
  const bodies = fc.oneof(
    value.map((some) => JSON.stringify(some)),
    fc.string(),
    fc.constantFrom("", "<html>", '{"task_id":', "[]", "null"),
  );
  fc.assert(
    fc.property(
      fc.constantFrom(...Object.keys(PROTOCOLS)),
      fc.constantFrom(200, 202, 204, 302, 500, 502, 504),
      bodies,
      (name, status, body) => {
        const protocol = PROTOCOLS[name];
        assert.ok(protocol !== undefined);
        const answer = anAnswer(status, body);
        const submitted = protocol.readSubmission(answer, call);
        const looked = protocol.readLook(answer, "t");
        protocol.readPlace?.(answer);
        protocol.readCancellation(answer);
        if (readMembers(answer) === undefined) {
          assert.equal(submitted.kind, "unknown");
          assert.ok(looked.kind === "unavailable" || looked.kind === "lost");
        }
        if (status >= 300) {
          assert.ok(submitted.kind !== "accepted" && submitted.kind !== "done");
          assert.ok(looked.kind !== "succeeded" && looked.kind !== "failed");
        }
      },
    ),
    { numRuns: 1_000 },
  );
});
