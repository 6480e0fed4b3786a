import assert from "node:assert/strict";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { silentLogger } from "../kernel/log.ts";
import { anAuditEvent } from "../testing/an-audit-event.ts";
import { VirtualClock } from "../testing/virtual-clock.ts";
import { openTracer } from "./open-tracer.ts";
import { noTracer, requestAttributes, type Tracer } from "./tracer.ts";
import { parseTraceparent } from "./traceparent.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const PARENT = "b7ad6b7169203331";
const INCOMING = `00-${TRACE}-${PARENT}-01`;

interface WireValue {
  readonly stringValue?: string;
  readonly intValue?: string;
  readonly doubleValue?: number;
  readonly boolValue?: boolean;
}
interface WireSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly traceState?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly { readonly key: string; readonly value: WireValue }[];
  readonly events: readonly { readonly name: string; readonly timeUnixNano: string }[];
  readonly status: { readonly code: number };
}
interface WireBody {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly { readonly key: string; readonly value: WireValue }[] };
    readonly scopeSpans: readonly { readonly spans: readonly WireSpan[] }[];
  }[];
}

/** A collector with a ledger of its own: what it was sent, and what it took. */
async function startCollector(
  answer: (call: number) => { status: number; body?: string; headers?: Record<string, string> } = () => ({
    status: 200,
    body: "{}",
  }),
) {
  const calls: { path: string; headers: IncomingHttpHeaders; body: WireBody }[] = [];
  const taken: WireSpan[] = [];
  const waiters: (() => void)[] = [];
  const server = createServer((req, res) => {
    const chunks: Buffer[] = [];
    req.on("data", (chunk: Buffer) => chunks.push(chunk));
    req.on("end", () => {
      const body = JSON.parse(Buffer.concat(chunks).toString()) as WireBody;
      calls.push({ path: req.url ?? "", headers: req.headers, body });
      const { status, body: text = "", headers = {} } = answer(calls.length);
      if (status === 200)
        taken.push(...body.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans)));
      res.writeHead(status, headers).end(text);
      waiters.splice(0).forEach((wake) => wake());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const called = async (count: number): Promise<void> => {
    while (calls.length < count) await new Promise<void>((resolve) => waiters.push(resolve));
  };
  const close = (): Promise<unknown> => new Promise((resolve) => server.close(resolve));
  return { endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, calls, taken, called, close };
}

const open = (endpoint: string, clock = new VirtualClock()): Promise<Tracer> =>
  openTracer({ endpoint, serviceName: "yard" }, "1.2.3", { clock, log: silentLogger });

/** Events of a real socket are waited for while virtual time stands; then time moves until `done` holds. */
async function until(clock: VirtualClock, done: () => boolean, stepMs = 0): Promise<void> {
  for (let i = 0; i < 20_000 && !done(); i += 1) await clock.advance(stepMs);
  assert.ok(done(), "did not happen");
}

test("a request is one span with its moments as events, its facts as attributes, under the caller's span [10.O3]", async () => {
  const collector = await startCollector();
  const tracer = await open(collector.endpoint);
  const span = tracer.start(INCOMING, "vendor=1", "POST /v1/chat/completions", 1_767_225_600_000.25);
  assert.ok(span !== null);
  for (const [name, at] of [
    ["queue", 1_767_225_600_001],
    ["connect", 1_767_225_600_002],
    ["first_byte", 1_767_225_600_010],
    ["stream_end", 1_767_225_600_050],
  ] as const)
    span.event(name, at);
  const sent = parseTraceparent(span.traceparent());
  span.end(requestAttributes(anAuditEvent()), "ok", 1_767_225_600_051);
  span.end({}, "error", 1_767_225_600_099);
  await tracer.close();
  await collector.close();
  assert.equal(collector.taken.length, 1);
  const [got] = collector.taken as [WireSpan];
  assert.equal(got.traceId, TRACE);
  assert.equal(got.parentSpanId, PARENT);
  assert.equal(got.traceState, "vendor=1");
  assert.deepEqual(sent, { traceId: TRACE, parentId: got.spanId, sampled: true });
  assert.equal(got.startTimeUnixNano, "1767225600000250000");
  assert.equal(got.endTimeUnixNano, "1767225600051000000");
  assert.deepEqual(
    got.events.map(({ name }) => name),
    ["queue", "connect", "first_byte", "stream_end"],
  );
  assert.equal(got.kind, 2);
  const attributes = Object.fromEntries(got.attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
  assert.equal(attributes["http.route"], "/v1/chat/completions");
  assert.equal(attributes["http.response.status_code"], "200");
  assert.equal(attributes["gen_ai.request.model"], "small");
  assert.equal(attributes["gen_ai.usage.output_tokens"], "20");
  assert.ok(!("error.type" in attributes));
  const call = collector.calls[0];
  assert.equal(call?.path, "/v1/traces");
  assert.equal(call?.headers["content-type"], "application/json");
  assert.deepEqual(call?.body.resourceSpans[0]?.resource.attributes, [
    { key: "service.name", value: { stringValue: "yard" } },
    { key: "service.version", value: { stringValue: "1.2.3" } },
  ]);
  assert.deepEqual(tracer.stats(), { exported: 1, dropped: 0, pending: 0 });
});

test("without otel there is no span and no count, and the caller's headers are left to pass unchanged [10.O3]", async () => {
  const tracer = await openTracer(null, "1.2.3", { clock: new VirtualClock(), log: silentLogger });
  assert.equal(tracer, noTracer);
  assert.equal(tracer.start(INCOMING, undefined, "x", 0), null);
  assert.equal(tracer.stats(), undefined);
  await tracer.close();
});

test("a caller that does not record its trace gets no span", async () => {
  const tracer = await open("http://127.0.0.1:9");
  assert.equal(tracer.start(`00-${TRACE}-${PARENT}-00`, undefined, "x", 0), null);
  await tracer.close();
});

test("an unreadable traceparent begins a new trace and does not carry its state", async () => {
  const tracer = await open("http://127.0.0.1:9");
  for (const bad of [undefined, "", "garbage", `00-${TRACE.toUpperCase()}-${PARENT}-01`]) {
    const span = tracer.start(bad, "vendor=1", "x", 0);
    assert.notEqual(parseTraceparent(span?.traceparent())?.traceId, TRACE);
    assert.equal(span?.tracestate, undefined);
  }
  const traces = new Set(
    Array.from({ length: 1_000 }, () => tracer.start(undefined, undefined, "x", 0)?.traceparent()),
  );
  assert.equal(traces.size, 1_000);
  await tracer.close();
});

const zeros = "0".repeat(32);
const rows: { name: string; text: string; valid: boolean }[] = [
  { name: "version 00", text: INCOMING, valid: true },
  { name: "a later version", text: `01-${TRACE}-${PARENT}-01`, valid: true },
  { name: "a later version with more fields", text: `cc-${TRACE}-${PARENT}-01-what-ever`, valid: true },
  { name: "a later version with glued text", text: `cc-${TRACE}-${PARENT}-01x`, valid: false },
  { name: "version ff", text: `ff-${TRACE}-${PARENT}-01`, valid: false },
  { name: "version 00 with more fields", text: `${INCOMING}-01`, valid: false },
  { name: "upper case", text: INCOMING.toUpperCase(), valid: false },
  { name: "a trace of zeros", text: `00-${zeros}-${PARENT}-01`, valid: false },
  { name: "a parent of zeros", text: `00-${TRACE}-0000000000000000-01`, valid: false },
  { name: "a short trace", text: `00-${TRACE.slice(1)}-${PARENT}-01`, valid: false },
  { name: "blanks around", text: ` ${INCOMING} `, valid: false },
  { name: "two values in one header", text: `${INCOMING}, ${INCOMING}`, valid: false },
  { name: "a line feed at the end", text: `${INCOMING}\n`, valid: false },
];
for (const { name, text, valid } of rows)
  test(`traceparent: ${name} is ${valid ? "read" : "refused"}`, () =>
    assert.equal(parseTraceparent(text) !== undefined, valid));

test("no text makes the traceparent parser throw or return a malformed id", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      const parsed = parseTraceparent(text);
      assert.ok(parsed === undefined || /^[0-9a-f]{32}$/.test(parsed.traceId));
    }),
  );
});

test("a collector that is away costs no request anything: spans are tried again, then dropped and counted", async () => {
  const clock = new VirtualClock();
  const tracer = await open("http://127.0.0.1:9", clock); // The discard port: nothing listens.
  for (let i = 0; i < 10_000; i += 1) tracer.start(undefined, undefined, "x", 0)?.end({}, "ok", 1);
  const before = tracer.stats();
  assert.equal((before?.pending ?? 0) + (before?.dropped ?? 0), 10_000);
  assert.equal(before?.pending, 8_192);
  await until(clock, () => tracer.stats()?.pending === 0, 500);
  assert.deepEqual(tracer.stats(), { exported: 0, dropped: 10_000, pending: 0 });
  await tracer.close();
});

test("a busy collector is asked again after the time it names, and nothing is lost or doubled", async () => {
  const collector = await startCollector((call) =>
    call === 1 ? { status: 503, headers: { "retry-after": "7" } } : { status: 200, body: "{}" },
  );
  const clock = new VirtualClock();
  const tracer = await open(collector.endpoint, clock);
  tracer.start(undefined, undefined, "x", 0)?.end({}, "ok", 1);
  await clock.advance(1_000);
  await collector.called(1);
  await until(clock, () => collector.calls.length === 2, 100);
  await until(clock, () => tracer.stats()?.pending === 0);
  assert.equal(collector.taken.length, 1);
  assert.deepEqual(tracer.stats(), { exported: 1, dropped: 0, pending: 0 });
  await tracer.close();
  await collector.close();
});

test("a collector that refuses a batch, or a part of one, has it counted as dropped", async () => {
  const answers = [{ status: 400 }, { status: 200, body: '{"partialSuccess":{"rejectedSpans":"1"}}' }];
  const collector = await startCollector((call) => answers[call - 1] ?? { status: 200 });
  const clock = new VirtualClock();
  const tracer = await open(collector.endpoint, clock);
  tracer.start(undefined, undefined, "x", 0)?.end({}, "ok", 1);
  await clock.advance(1_000);
  await until(clock, () => tracer.stats()?.dropped === 1);
  for (let i = 0; i < 3; i += 1) tracer.start(undefined, undefined, "x", 0)?.end({}, "ok", 1);
  await tracer.close();
  assert.deepEqual(tracer.stats(), { exported: 2, dropped: 2, pending: 0 });
  await collector.close();
});

test("the stop sends what is held, in batches of at most 512", async () => {
  const collector = await startCollector();
  const tracer = await open(collector.endpoint);
  for (let i = 0; i < 1_300; i += 1) tracer.start(undefined, undefined, "x", 0)?.end({ n: i }, "ok", 1);
  await tracer.close();
  await collector.close();
  assert.equal(collector.taken.length, 1_300);
  assert.equal(new Set(collector.taken.map(({ spanId }) => spanId)).size, 1_300);
  assert.equal(collector.calls.length, 3);
});

test("the stop waits a bounded time for a collector that never answers", async () => {
  const sockets: { destroy(): void }[] = [];
  const server = createServer(() => {}).on("connection", (socket) => sockets.push(socket));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const clock = new VirtualClock();
  const tracer = await open(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, clock);
  tracer.start(undefined, undefined, "x", 0)?.end({}, "ok", 1);
  const closed = tracer.close();
  await clock.advance(3_000);
  await closed;
  assert.deepEqual(tracer.stats(), { exported: 0, dropped: 1, pending: 0 });
  sockets.forEach((socket) => socket.destroy());
  await new Promise((resolve) => server.close(resolve));
});
