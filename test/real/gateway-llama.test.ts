import assert from "node:assert/strict";
import { after, before, test, type TestContext } from "node:test";
import OpenAI from "openai";
import { notRun, REAL_MODEL, startRealLlama, type RealLlama } from "../../src/testing/real-llama.ts";
import type { RealEngine } from "../../src/testing/real-engine.ts";
import { onlyUpstream } from "../e2e/support/health.ts";
import { call, startCall } from "../e2e/support/calls.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "../e2e/support/test-gateway.ts";

// The whole gateway in front of llama.cpp's own server. What the engine does is read from the engine: its /slots and its
// /metrics. Calls are told apart there by their `max_tokens`.

const SLOTS = 2;
const ENGINE_KEY = "CANARY-engine-key-0123456789";
/** One thread each: on a machine whose processors are taken, threads that wait for each other are many times slower. */
const ENGINE = { slots: SLOTS, ctx: 4_096, threads: 1 } as const;
/** For what an engine does between two tokens, which takes long where all processors are taken. */
const ENGINE_MS = 45_000;

let llama: RealLlama;
let gateway: TestGateway | undefined;

before(async () => {
  llama = await startRealLlama({ ...ENGINE, apiKey: ENGINE_KEY });
  if (llama.kind === "running") gateway = await gatewayFor(llama.engine, { key_env: "ENGINE_KEY", batch_max: 1 });
});
after(async () => {
  await gateway?.stop();
  if (llama.kind === "running") await llama.engine.close();
});

const gatewayFor = (engine: RealEngine, more: Record<string, unknown> = {}): Promise<TestGateway> =>
  startTestGateway({
    upstreams: [
      {
        id: "real",
        engine: "llama.cpp",
        models: [REAL_MODEL],
        slots: SLOTS,
        endpoints: [{ url: engine.url }],
        ...more,
      },
    ],
    env: { ENGINE_KEY },
  });

/** A test that needs the engine: not run, and loudly so, where it can't be had. */
function withEngine(name: string, run: (gateway: TestGateway, engine: RealEngine) => Promise<void>): void {
  test(name, async (t: TestContext) => {
    if (llama.kind === "unavailable") {
      notRun(t, llama.why);
      return;
    }
    assert.ok(gateway !== undefined);
    await run(gateway, llama.engine);
  });
}

const asEngineClient = { authorization: `Bearer ${ENGINE_KEY}`, "content-type": "application/json" };
const messages = [{ role: "user" as const, content: "Name the stations of a railway line." }];
const chat = (maxTokens: number, stream = true): Record<string, unknown> => ({
  model: REAL_MODEL,
  stream,
  max_tokens: maxTokens,
  ignore_eos: true,
  temperature: 0,
  messages,
});
/** More than any test waits for. */
const ENDLESS = 1_900;

type SlotPage = readonly (
  | { readonly is_processing: false }
  | { readonly is_processing: true; readonly id_task: number; readonly params: { readonly max_tokens: number } }
)[];

interface BusySlot {
  /** Counts up as the engine takes requests in. */
  readonly task: number;
  readonly maxTokens: number;
}

async function busySlots(engine: RealEngine): Promise<BusySlot[]> {
  const slots = (await (await fetch(`${engine.url}/slots`, { headers: asEngineClient })).json()) as SlotPage;
  return slots.flatMap((slot) =>
    slot.is_processing ? [{ task: slot.id_task, maxTokens: slot.params.max_tokens }] : [],
  );
}

const untilBusy = (engine: RealEngine, maxTokens: number): Promise<unknown> =>
  eventually(
    `the engine works on the call of ${maxTokens} tokens`,
    () => busySlots(engine),
    (slots) => slots.some((slot) => slot.maxTokens === maxTokens),
    ENGINE_MS,
  );
const untilIdle = (engine: RealEngine): Promise<unknown> =>
  eventually(
    "all the engine's slots are free",
    () => busySlots(engine),
    (slots) => slots.length === 0,
    ENGINE_MS,
  );

async function engineMetric(engine: RealEngine, name: string): Promise<number> {
  const page = await (await fetch(`${engine.url}/metrics`, { headers: asEngineClient })).text();
  return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(page)?.[1] ?? Number.NaN);
}

/** Looks again and again until the end of the block. */
function sampling(look: () => Promise<void>): AsyncDisposable & { readonly count: () => number } {
  let over = false;
  let count = 0;
  const done = (async () => {
    while (!over) {
      await look();
      count += 1;
    }
  })();
  return {
    count: () => count,
    [Symbol.asyncDispose]: async () => {
      over = true;
      await done;
    },
  };
}

withEngine(
  "a real engine's stream reaches the official OpenAI client event by event, with its usage [10.X1 10.X4]",
  async (gw) => {
    const openai = new OpenAI({ baseURL: `${gw.url}/v1`, apiKey: gw.keys.client, maxRetries: 0 });
    const stream = await openai.chat.completions.create({
      model: REAL_MODEL,
      messages,
      max_tokens: 8,
      stream: true,
      stream_options: { include_usage: true },
    });
    let events = 0;
    let text = "";
    let finish: string | null | undefined;
    let usage: OpenAI.CompletionUsage | null | undefined;
    for await (const chunk of stream) {
      events += 1;
      text += chunk.choices[0]?.delta.content ?? "";
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.ok(events > 4 && text.length > 0);
    assert.ok(finish === "length" || finish === "stop");
    const completion = usage?.completion_tokens;
    assert.ok(completion !== undefined && completion > 0);
    const [record] = await eventually(
      "the audit event",
      async () => (await gw.audit()).records,
      (records) => records.length > 0,
    );
    assert.deepEqual([record?.outcome, record?.completionTokens], ["ok", completion]);
  },
);

withEngine("a real engine with a key gets the upstream's own, never the client's [10.X2]", async (gw, engine) => {
  const withClientKey = await fetch(`${engine.url}/v1/chat/completions`, {
    method: "POST",
    headers: { ...gw.auth, "content-type": "application/json" },
    body: JSON.stringify(chat(1)),
  });
  assert.equal(withClientKey.status, 401);
  const answer = await call(gw, { body: chat(1, false) });
  assert.equal(answer.status, 200, answer.text);
});

withEngine(
  "in a real engine batch holds no more than batch_max, and waiting interactive calls go before waiting batch [10.A2]",
  async (gw, engine) => {
    const taken = new Map<number, number>();
    let batchAtOnce = 0;
    const isBatch = (maxTokens: number): boolean => maxTokens < 240;
    {
      await using samples = sampling(async () => {
        const slots = await busySlots(engine);
        for (const slot of slots) taken.set(slot.maxTokens, slot.task);
        batchAtOnce = Math.max(batchAtOnce, slots.filter((slot) => isBatch(slot.maxTokens)).length);
      });
      const first = startCall(gw, { body: chat(232), class: "batch" });
      await untilBusy(engine, 232);
      const people = startCall(gw, { body: chat(384) });
      await untilBusy(engine, 384);
      const batch = [168, 176].map((tokens) => startCall(gw, { body: chat(tokens), class: "batch" }));
      await eventually(
        "batch waits",
        () => onlyUpstream(gw),
        (upstream) => upstream.queue.waiting.batch === 2,
      );
      const waiting = [248, 256].map((tokens) => startCall(gw, { body: chat(tokens) }));
      const answers = await Promise.all([first, people, ...batch, ...waiting].map(({ answer }) => answer));
      for (const answer of answers) assert.equal(answer.status, 200, answer.text);
      // The slot that batch may not have was free for people, whatever batch waited.
      assert.equal(answers[1]?.queueMs, 0);
      assert.ok(samples.count() > 0);
    }
    assert.equal(batchAtOnce, 1);
    const order = [232, 384, 248, 256, 168, 176];
    assert.deepEqual(
      [...taken]
        .toSorted(([, a], [, b]) => a - b)
        .map(([tokens]) => tokens)
        .filter((tokens) => order.includes(tokens)),
      order,
    );
    const { records } = await gw.audit();
    const started = records
      .slice(-order.length)
      .toSorted((a, b) => a.time + (a.queueMs ?? 0) - b.time - (b.queueMs ?? 0));
    assert.deepEqual(
      started.map((record) => record.class),
      ["batch", "interactive", "interactive", "interactive", "batch", "batch"],
    );
  },
);

withEngine(
  "the metrics that a real engine names are shown, and what it does not name is absent [10.O2]",
  async (gw, engine) => {
    const stream = startCall(gw, { body: chat(ENDLESS) });
    await untilBusy(engine, ENDLESS);
    const asOperator = { authorization: `Bearer ${gw.keys.operator}` };
    const valueOf = (page: string, name: string): string | undefined =>
      new RegExp(`^yardmaster_${name}\\{[^}]*upstream="real"[^}]*\\} (\\S+)$`, "m").exec(page)?.[1];
    const page = await eventually(
      "the engine's own count",
      async () => (await fetch(`${gw.url}/metrics`, { headers: asOperator })).text(),
      (text) => valueOf(text, "engine_running") === "1",
      ENGINE_MS,
    );
    assert.equal(valueOf(page, "engine_waiting"), "0");
    assert.equal(valueOf(page, "engine_kv_cache_use_ratio"), undefined);
    const reported = (await onlyUpstream(gw)).endpoints[0]?.reported;
    assert.deepEqual([reported?.running, reported?.waiting, reported?.kv_cache_use], [1, 0, null]);
    stream.leave();
    await untilIdle(engine);
  },
);

withEngine(
  "a client that leaves a stream frees the real engine's slot long before the answer would have ended [10.A5]",
  async (gw, engine) => {
    const before = await engineMetric(engine, "llamacpp:tokens_predicted_total");
    const stream = startCall(gw, { body: chat(ENDLESS) });
    await stream.received('"content":"');
    await untilBusy(engine, ENDLESS);
    stream.leave();
    await untilIdle(engine);
    const upstream = await eventually(
      "the slot is free",
      () => onlyUpstream(gw),
      (seen) => seen.in_use.interactive === 0,
    );
    assert.equal(upstream.lingering, 0);
    assert.ok((await engineMetric(engine, "llamacpp:tokens_predicted_total")) - before < ENDLESS);
    const last = await eventually(
      "the audit event",
      async () => (await gw.audit()).records.at(-1),
      (record) => record?.outcome === "client_aborted",
    );
    assert.equal(last?.status, 499);
  },
);

withEngine(
  "a real engine that works on for a client that left keeps its slot, shown as lingering, until it is seen free; its own queue stays empty while calls wait in ours [10.A5b]",
  async (gw, engine) => {
    const deferred = new Set<number>();
    const filler = startCall(gw, { body: chat(ENDLESS) });
    await untilBusy(engine, ENDLESS);
    const abandoned = startCall(gw, { body: chat(64, false) });
    await untilBusy(engine, 64);
    const waiting = [3, 4].map((tokens) => startCall(gw, { body: chat(tokens) }));
    await eventually(
      "two calls wait",
      () => onlyUpstream(gw),
      (upstream) => upstream.queue.waiting.interactive === 2,
    );
    {
      await using samples = sampling(
        async () => void deferred.add(await engineMetric(engine, "llamacpp:requests_deferred")),
      );
      abandoned.leave();
      const upstream = await eventually(
        "the slot lingers",
        () => onlyUpstream(gw),
        (seen) => seen.lingering === 1,
      );
      assert.equal(upstream.endpoints[0]?.lingering, 1);
      assert.equal(upstream.queue.waiting.interactive, 2);
      assert.equal(await gw.metric('yardmaster_lingering{upstream="real"}'), 1);
      assert.ok(
        (await busySlots(engine)).some((slot) => slot.maxTokens === 64),
        "the engine works on for the client that left",
      );
      assert.deepEqual(
        waiting.map(({ status }) => status),
        [0, 0],
      );

      for (const { answer } of waiting) assert.equal((await answer).status, 200);
      assert.ok(samples.count() > 0);
    }
    assert.deepEqual([...deferred], [0]);
    const upstream = await onlyUpstream(gw);
    assert.deepEqual([upstream.lingering, upstream.in_use.interactive], [0, 1]);
    filler.leave();
    await untilIdle(engine);
  },
);

withEngine(
  "a real engine's own refusals pass as it wrote them: no embeddings, and a prompt that is too long",
  async (gw, engine) => {
    const cases = [
      { path: "/v1/embeddings", body: { model: REAL_MODEL, input: "a" }, status: 501, type: "not_supported_error" },
      {
        path: "/v1/chat/completions",
        body: { ...chat(1), messages: [{ role: "user", content: "wagon ".repeat(4_000) }] },
        status: 400,
        type: "exceed_context_size_error",
      },
    ];
    for (const { path, body, status, type } of cases) {
      const direct = await fetch(engine.url + path, {
        method: "POST",
        headers: asEngineClient,
        body: JSON.stringify(body),
      });
      const answer = await call(gw, { path, body });
      assert.equal(answer.status, status);
      assert.equal(JSON.parse(answer.text).error.type, type);
      assert.deepEqual([answer.status, JSON.parse(answer.text)], [direct.status, await direct.json()]);
      const last = await eventually(
        "the audit event",
        async () => (await gw.audit()).records.at(-1),
        (record) => record?.status === status,
      );
      assert.equal(last?.outcome, "engine_error");
    }
  },
);

test("a real engine that is killed inside a stream is an error event and a broken connection, audited as cut, never a clean end [10.X5]", async (t) => {
  const own = await startRealLlama(ENGINE);
  if (own.kind === "unavailable") {
    notRun(t, own.why);
    return;
  }
  await using engine = own.engine;
  const gw = await gatewayFor(engine);
  try {
    const stream = startCall(gw, { body: chat(ENDLESS) });
    await stream.received('"content":"');
    engine.kill("SIGKILL");
    const answer = await stream.answer;
    assert.equal(answer.status, 200);
    assert.equal(answer.whole, false);
    const events = answer.text.split("\n\n").filter((event) => event !== "");
    assert.equal(JSON.parse(events.at(-1)?.replace("data: ", "") ?? "").error.code, "UPSTREAM_ERROR");
    assert.ok(!answer.text.includes("[DONE]"));
    const last = await eventually(
      "the audit event",
      async () => (await gw.audit()).records.at(-1),
      (record) => record !== undefined,
    );
    assert.equal(last?.outcome, "upstream_truncated");
    const next = await call(gw, { body: chat(1) });
    assert.ok(next.status === 502 || next.status === 503, `${next.status} ${next.text}`);
  } finally {
    await gw.stop();
  }
});
