import assert from "node:assert/strict";
import { test } from "node:test";
import type { AuditPage } from "../../src/contract/audit-event.ts";
import type { RequestClass } from "../../src/contract/request-class.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { parsePrometheus } from "../../src/testing/exposition-parser.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, call, errorCodeOf, startCall, type CallAnswer } from "./support/calls.ts";
import { type HealthPage, upstreamHealth } from "./support/health.ts";
import { entriesOf, median, peakOf, quantile } from "./support/ledger-check.ts";
import { OPERATOR_KEY, programFolder, reach, runProgram } from "./support/program.ts";
import { crowdingOf } from "./support/run-queue.ts";

// A gateway as a process of its own under more load than its engine can bear: what it lets through, what it sheds, and what
// that costs it.

/** Times the length: 1 shows it in seconds, more is for a soak. */
const TIMES = Number(process.env["YARDMASTER_SOAK"] ?? 1);
const CLASSES = ["interactive", "system", "batch"] as const;
const MIB = 1024 * 1024;
const never = new AbortController().signal;

interface Gateway {
  readonly pid: number;
  readonly to: ReturnType<typeof reach>;
  health(): Promise<HealthPage>;
  audit(query: string): Promise<AuditPage>;
  /** Undefined when it is not on the page. */
  metric(name: string, labels?: Readonly<Record<string, string>>): Promise<number | undefined>;
}

async function withProcess(upstream: Record<string, unknown>, run: (gateway: Gateway) => Promise<void>): Promise<void> {
  await using folder = await programFolder({ upstreams: [{ id: "u", models: ["m"], engine: "vllm", ...upstream }] });
  await using program = runProgram(["gateway", "--config", folder.config, "--log-format", "json"]);
  const port = await program.ready();
  const get = (path: string): Promise<Response> =>
    fetch(`http://127.0.0.1:${port}${path}`, { headers: { authorization: `Bearer ${OPERATOR_KEY}` } });
  await run({
    pid: program.pid,
    to: reach(port),
    health: async () => (await (await get("/health")).json()) as HealthPage,
    audit: async (query) => (await (await get(`/admin/audit${query}`)).json()) as AuditPage,
    metric: async (name, labels = {}) => {
      const samples = parsePrometheus(await (await get("/metrics")).text()).find(
        (family) => family.name === name,
      )?.samples;
      return samples?.find((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
        ?.value;
    },
  });
  assert.doesNotMatch(program.err, /"level":"error"/);
}

/** Calls at a fixed rate, whatever becomes of them. */
async function offer(
  ratePerSecond: Readonly<Record<RequestClass, number>>,
  ms: number,
  ask: (requestClass: RequestClass) => Promise<CallAnswer>,
): Promise<Record<RequestClass, CallAnswer[]>> {
  const sent: Record<RequestClass, Promise<CallAnswer>[]> = { interactive: [], system: [], batch: [] };
  const from = systemClock.mono();
  for (let elapsed = 0; elapsed < ms; elapsed = systemClock.mono() - from) {
    for (const requestClass of CLASSES) {
      const due = (Math.min(elapsed, ms) / 1_000) * ratePerSecond[requestClass];
      while (sent[requestClass].length < due) sent[requestClass].push(ask(requestClass));
    }
    await systemClock.sleep(20, never);
  }
  const [interactive, system, batch] = await Promise.all(
    CLASSES.map((requestClass) => Promise.all(sent[requestClass])),
  );
  return { interactive: interactive ?? [], system: system ?? [], batch: batch ?? [] };
}

test(
  "under ten times the load people's calls succeed, batch is shed first and cheaply with Retry-After, the engine's slots stay filled and are never exceeded, and memory and waits come back [80.G7 80.I3 80.I9 80.C17 80.C19 10.A2]",
  { timeout: 120_000 * TIMES },
  async () => {
    const slots = 8;
    const holdMs = 500;
    const capacity = (slots * 1_000) / holdMs;
    await using engine = await anEngine();
    const upstream = {
      slots,
      batch_max: 6,
      queue: { max: 40, timeout_s: { batch: 4 } },
      endpoints: [{ url: engine.url }],
    };
    await withProcess(upstream, async (gateway) => {
      const ask = (requestClass: RequestClass): Promise<CallAnswer> =>
        call(gateway.to, {
          class: requestClass,
          body: aTask({ tokens: 1, delayFirstMs: holdMs }, { stream: false }, requestClass),
        });
      // As much as the engine is made for, and a little more: what memory it takes then is the usual.
      await offer({ interactive: capacity, system: 0.2 * capacity, batch: 0 }, 2_500, ask);
      engine.resetLedger();
      const rssBefore = (await gateway.metric("yardmaster_process_resident_memory_bytes")) ?? 0;

      const answers = await offer(
        { interactive: 0.6 * capacity, system: capacity, batch: 8.4 * capacity },
        8_000 * TIMES,
        ask,
      );
      const { entries, concurrentPeak } = engine.ledger();
      const good = (requestClass: RequestClass): number =>
        answers[requestClass].filter(({ status }) => status === 200).length / answers[requestClass].length;
      assert.ok(good("interactive") >= 0.999, `${good("interactive")} of people's calls`);
      assert.ok(good("system") > good("batch"), `${good("system")} of system, ${good("batch")} of batch`);
      assert.ok(good("batch") > 0, "the floor of batch");
      for (const answer of CLASSES.flatMap((requestClass) => answers[requestClass]).filter(
        ({ status }) => status !== 200,
      )) {
        assert.ok(answer.status === 429 || answer.status === 503, `${answer.status}`);
        assert.ok(["QUEUE_FULL", "QUEUE_TIMEOUT"].includes(errorCodeOf(answer.text) ?? ""), answer.text);
        assert.match(String(answer.headers["retry-after"]), /^[1-9]\d*$/);
      }
      // By the engine's own clock, so that a slow machine slows both sides: a collapse would leave the slots empty.
      assert.ok(occupancyOf(entries, slots) >= 0.6, `${occupancyOf(entries, slots)} of the slots' time`);
      assert.ok(concurrentPeak <= slots && peakOf(entries) <= slots, `${concurrentPeak}`);
      assert.ok(peakOf(entriesOf(entries, "batch")) <= 6);

      // Those refused on arrival: none of them waited for the queue, whose shortest wait is its limit of 4 s.
      const { records } = await gateway.audit("?outcome=refused&limit=1000");
      const refusedMs = records.filter(({ queueMs }) => queueMs === 0).map(({ totalMs }) => totalMs);
      assert.ok(
        refusedMs.length > 100 && quantile(refusedMs, 0.99) < 2_000,
        `p99 ${quantile(refusedMs, 0.99)} ms of ${refusedMs.length}`,
      );

      await eventually(
        "nobody waits",
        () => upstreamHealth(gateway),
        ({ queue, in_use }) => queue.waiting.batch + queue.waiting.system + in_use.batch + in_use.system === 0,
      );
      assert.deepEqual((await ask("batch")).queueMs, 0);
      const rss = (await gateway.metric("yardmaster_process_resident_memory_bytes")) ?? Infinity;
      assert.ok(rss < rssBefore * 1.1 + 48 * MIB, `${rss / MIB} MiB after, ${rssBefore / MIB} MiB before`);
      assert.equal(await gateway.metric("yardmaster_buffered_bytes"), 0);
    });
  },
);

/** Part of the slots' time that calls filled, from the first to the last. */
function occupancyOf(
  entries: readonly { readonly openedMs: number; readonly endedMs: number | null }[],
  slots: number,
): number {
  const from = entries[0]?.openedMs ?? 0;
  const to = Math.max(...entries.map(({ endedMs }) => endedMs ?? 0));
  const used = entries.reduce((sum, { openedMs, endedMs }) => sum + (endedMs ?? to) - openedMs, 0);
  return used / (slots * (to - from));
}

test(
  "with three hundred streams running, and large prompts coming in, the gateway answers its health page and small calls without a pause [80.G7 80.C24]",
  { timeout: 120_000 * TIMES },
  async (t) => {
    await using engine = await anEngine({ slots: 600 });
    await withProcess({ slots: 500, batch_max: 500, endpoints: [{ url: engine.url }] }, async (gateway) => {
      const streams = Array.from({ length: 300 }, () =>
        startCall(gateway.to, { body: aTask({ tokens: 100_000, delayBetweenMs: 200 }) }),
      );
      await Promise.all(streams.map((one) => one.received("data:")));
      const small = async (): Promise<number> => {
        const answer = await call(gateway.to, { body: aTask({ tokens: 1 }, { stream: false }) });
        assert.equal(answer.status, 200);
        return answer.tookMs;
      };
      const probe = async (): Promise<number> => {
        const from = systemClock.mono();
        assert.equal((await fetch(`http://127.0.0.1:${gateway.to.port}/healthz`)).status, 200);
        return systemClock.mono() - from;
      };
      const crowding = crowdingOf(gateway.pid);
      await gateway.metric("yardmaster_event_loop_delay_seconds"); // The next look counts from here.

      const prompt = "word ".repeat(400_000);
      const large = Array.from({ length: 20 }, () =>
        startCall(gateway.to, {
          body: aTask({ status: 200, body: {} }, { stream: false, messages: [{ role: "user", content: prompt }] }),
        }),
      );
      const probes: number[] = [];
      const smalls: number[] = [];
      for (let round = 0; round < 15 * TIMES; round += 1) {
        await systemClock.sleep(100, never);
        probes.push(await probe());
        smalls.push(await small());
      }
      for (const one of large) assert.equal((await one.answer).status, 200);
      const delay = (await gateway.metric("yardmaster_event_loop_delay_seconds", { stat: "p99" })) ?? Infinity;
      const times = crowding();
      assert.ok(quantile(probes, 0.99) < 1_000 * times, `health page p99 ${quantile(probes, 0.99)} ms`);
      assert.ok(median(smalls) < 500 * times, `small calls ${median(smalls)} ms`);
      t.diagnostic(`event loop delay p99 ${delay} s, on a machine that makes it ${times} times longer`);
      assert.ok(delay < 0.1 * times, `${delay} s`);
      assert.ok(streams.every(({ status }) => status === 200));
      for (const one of streams) one.leave();
      await eventually(
        "none in flight",
        () => gateway.metric("yardmaster_in_flight", { class: "interactive" }),
        (count) => count === 0,
      );
    });
  },
);
