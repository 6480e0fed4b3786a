import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { anEngine } from "./support/an-engine.ts";
import { onlyUpstream } from "./support/health.ts";
import { aTask, call, startCall } from "./support/calls.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./support/test-gateway.ts";

// What is kept of each request: one audit event, and one span where a collector is named.

const sim = (): Promise<SimEngine> => anEngine({ slots: 16 });

async function withGateway(options: TestGatewayOptions, run: (gateway: TestGateway) => Promise<void>): Promise<void> {
  const gateway = await startTestGateway(options);
  try {
    await run(gateway);
  } finally {
    await gateway.stop();
  }
}

const upstreamOf = (engine: SimEngine, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  id: "u",
  models: ["m"],
  engine: "vllm",
  slots: 1,
  usage: "inject",
  endpoints: [{ url: engine.url }],
  ...more,
});

test("whatever its end, a request has one audit event with the facts of that end and nothing that was said: served, refused, displaced, timed out, broken, abandoned while waiting and while streaming [10.O1]", async () => {
  await using engine = await sim();
  const upstream = upstreamOf(engine, { queue: { max: 3, timeout_s: { interactive: 30, system: 30, batch: 0.2 } } });
  await withGateway({ upstreams: [upstream] }, async (gateway) => {
    const named = (id: string, more: Parameters<typeof startCall>[1] = {}): Parameters<typeof startCall>[1] => ({
      ...more,
      headers: { "x-request-id": id, ...more.headers },
    });
    const words = { messages: [{ role: "user", content: "PROMPT-CANARY" }] };
    const task = (
      simulated: Record<string, unknown> = {},
      more: Record<string, unknown> = {},
    ): Record<string, unknown> => aTask(simulated, { ...words, ...more });

    await call(gateway, named("served", { body: task({ tokens: 5 }) }));
    await call(
      gateway,
      named("engine-says-no", { body: task({ status: 400, body: { error: { message: "no", code: 400 } } }) }),
    );
    await call(gateway, named("broken", { body: task({ cutAfterEvents: 2, cut: "rst" }) }));
    await call(gateway, named("unknown-model", { body: task({}, { model: "z" }) }));
    await call(gateway, named("bad-json", { body: Buffer.from("{") }));
    const streaming = startCall(
      gateway,
      named("left-streaming", { body: task({ tokens: 1_000, delayBetweenMs: 50 }) }),
    );
    await streaming.received("data:");
    await call(gateway, named("waited-too-long", { class: "batch", body: task() }));
    const waiting = startCall(gateway, named("left-waiting", { body: task() }));
    await eventually(
      "it waits",
      async () => (await onlyUpstream(gateway)).queue.waiting.interactive,
      (count) => count === 1,
    );
    waiting.leave();
    await eventually(
      "it left",
      async () => (await onlyUpstream(gateway)).queue.waiting.interactive,
      (count) => count === 0,
    );
    streaming.leave();
    const { records } = await eventually(
      "all are there",
      () => gateway.audit("?limit=100"),
      (page) => page.records.length >= 8,
    );
    const facts = Object.fromEntries(
      records.map((record) => [record.requestId, [record.status, record.outcome, record.errorCode, record.attempts]]),
    );
    assert.deepEqual(facts, {
      served: [200, "ok", null, 1],
      "engine-says-no": [400, "engine_error", null, 1],
      broken: [200, "upstream_truncated", "UPSTREAM_ERROR", 1],
      "unknown-model": [404, "refused", "MODEL_UNKNOWN", 0],
      "bad-json": [400, "refused", "BAD_JSON", 0],
      "waited-too-long": [503, "queue_timeout", "QUEUE_TIMEOUT", 0],
      "left-waiting": [499, "client_aborted_queued", "CLIENT_CLOSED", 0],
      "left-streaming": [499, "client_aborted", "CLIENT_CLOSED", 1],
    });
    assert.equal(records.length, 8);
    const [served] = records;
    assert.deepEqual(
      [served?.keyId, served?.class, served?.method, served?.route, served?.model, served?.upstream],
      ["test-client", "interactive", "POST", "/v1/chat/completions", "m", "u"],
    );
    assert.equal(served?.completionTokens, 5);
    assert.ok(
      (served?.promptTokens ?? 0) > 0 &&
        (served?.firstByteMs ?? -1) >= 0 &&
        (served?.totalMs ?? 0) >= (served?.firstByteMs ?? 0) &&
        (served?.bytesOut ?? 0) > 100,
    );
    assert.deepEqual(
      records.map(({ seq }) => seq),
      records.map((_, i) => i + 1),
    );
    const all = JSON.stringify(records) + gateway.logLines.join("\n");
    for (const secret of ["PROMPT-CANARY", "CANARY-client"]) assert.ok(!all.includes(secret), secret);
  });
});

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly events: readonly { readonly name: string; readonly timeUnixNano: string }[];
}

async function startCollector(): Promise<
  { readonly url: string; readonly spans: readonly Span[]; readonly paths: ReadonlySet<string> } & AsyncDisposable
> {
  const spans: Span[] = [];
  const paths = new Set<string>();
  const server = createServer((req, res) => {
    let body = "";
    req.setEncoding("utf8").on("data", (text: string) => (body += text));
    req.on("end", () => {
      paths.add(req.url ?? "");
      const sent: { resourceSpans: { scopeSpans: { spans: Span[] }[] }[] } = JSON.parse(body);
      spans.push(...sent.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)));
      res.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    spans,
    paths,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

const headerOf = (headers: readonly string[], name: string): string | undefined =>
  headers[headers.findIndex((text, at) => at % 2 === 0 && text.toLowerCase() === name) + 1];

test("with a collector named, each request is one span that continues its caller's trace, with queue, connect and first byte as its events in order, and the engine is called inside it [10.O3]", async () => {
  await using engine = await sim();
  await using collector = await startCollector();
  await withGateway(
    { upstreams: [upstreamOf(engine)], file: { otel: { endpoint: collector.url } } },
    async (gateway) => {
      const trace = "0af7651916cd43dd8448eb211c80319c";
      const parent = "b7ad6b7169203331";
      await call(gateway, { body: aTask({}, {}, "traced"), headers: { traceparent: `00-${trace}-${parent}-01` } });
      await call(gateway, { body: aTask({}, {}, "own") });
      await eventually(
        "both spans",
        () => collector.spans.length,
        (count) => count === 2,
        20_000,
      );
      const [traced, own] = [
        collector.spans.find((span) => span.traceId === trace),
        collector.spans.find((span) => span.traceId !== trace),
      ];
      assert.ok(traced !== undefined && own !== undefined);
      assert.deepEqual([traced.parentSpanId, traced.name], [parent, "POST /v1/chat/completions"]);
      assert.ok((own.parentSpanId ?? "") === "");
      for (const span of [traced, own]) {
        assert.deepEqual(
          span.events.map(({ name }) => name),
          ["yardmaster.slot.taken", "yardmaster.connect", "yardmaster.first_byte"],
        );
        const times = [
          span.startTimeUnixNano,
          ...span.events.map(({ timeUnixNano }) => timeUnixNano),
          span.endTimeUnixNano,
        ].map(BigInt);
        assert.deepEqual(
          times,
          times.toSorted((a, b) => (a < b ? -1 : a > b ? 1 : 0)),
        );
      }
      const { entries } = engine.ledger();
      for (const [tag, span] of [
        ["traced", traced],
        ["own", own],
      ] as const) {
        const seen = headerOf(entries.find((entry) => entry.tag === tag)?.headers ?? [], "traceparent");
        assert.equal(seen?.slice(0, 52), `00-${span.traceId}-${span.spanId}`);
      }
      assert.deepEqual([...collector.paths], ["/v1/traces"]);
    },
  );
});

test("a mute collector delays no request, and a stop only within its bound [10.O3 80.I9]", async () => {
  await using engine = await sim();
  const mute = createServer(() => {});
  await new Promise<void>((resolve) => mute.listen(0, "127.0.0.1", resolve));
  const { port } = mute.address() as AddressInfo;
  const gateway = await startTestGateway({
    upstreams: [upstreamOf(engine)],
    file: { otel: { endpoint: `http://127.0.0.1:${port}` } },
  });
  for (let i = 0; i < 20; i += 1) assert.equal((await call(gateway, { body: aTask() })).status, 200);
  assert.equal(await gateway.metric("yardmaster_trace_spans_exported_total"), 0);
  await gateway.stop();
  mute.closeAllConnections();
  await new Promise<void>((resolve) => mute.close(() => resolve()));
});
