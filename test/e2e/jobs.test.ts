import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { startRedis } from "../../src/testing/servers/redis-server.ts";
import type { TestServer } from "../../src/testing/servers/server-process.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { call, errorCodeOf, startCall } from "./support/calls.ts";
import { aChat, accepted, ask, ended, jobOf, submit } from "./support/jobs.ts";
import { entriesOf, peakOf } from "./support/ledger-check.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./support/test-gateway.ts";

// Jobs of one gateway over real sockets, with the engine's ledger as evidence; the same for both stores.

let engine: SimEngine;
let redis: TestServer;
let prefixes = 0;
const OTHER = "CANARY-other-0123456789abcdef0123456789abcdef";

before(async () => {
  redis = await startRedis();
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(async () => {
  await engine.close();
  await redis.close();
});

const MODES = {
  local: () => ({}),
  redis: () => ({
    coordination: "redis",
    redis_url: redis.url,
    key_prefix: `j${process.pid}-${(prefixes += 1)}`,
    // A loaded machine must not look like a dead server where that is not the question.
    coordination_timeout_ms: 1_000,
  }),
} as const;

async function withGateway(
  mode: keyof typeof MODES,
  run: (gateway: TestGateway) => Promise<void>,
  more: { readonly upstream?: Record<string, unknown>; readonly file?: Record<string, unknown> } & Omit<
    TestGatewayOptions,
    "upstreams" | "file"
  > = {},
): Promise<void> {
  const { upstream, file, ...options } = more;
  const gateway = await startTestGateway({
    ...options,
    file: { ...MODES[mode](), ...file },
    upstreams: [
      { id: "u", models: ["m"], engine: "vllm", slots: 16, endpoints: [{ url: engine.url }], ...upstream },
      { id: "plain", kind: "http", slots: 4, endpoints: [{ url: engine.url }] },
    ],
  });
  try {
    await run(gateway);
  } finally {
    await gateway.stop();
  }
}

for (const mode of ["local", "redis"] as const) {
  describe(`jobs (${mode})`, () => {
    test("a job is taken with 202 and a place to look, runs, and its result is the engine's bytes and type [20.J1 20.J2 80.C28]", async () => {
      await withGateway(mode, async (gateway) => {
        const answer = await submit(gateway, { body: aChat(), metadata: { who: "me" } });
        assert.equal(answer.status, 202);
        const job = JSON.parse(answer.text) as { id: string; state: string };
        assert.equal(answer.headers["location"], `/v1/jobs/${job.id}`);
        assert.equal(answer.headers["x-yardmaster-durability"], mode === "local" ? "fsync" : "server");
        const done = await ended(gateway, job.id);
        assert.deepEqual(
          [done.state, done.attempts, done.progress, done.error, done.metadata],
          ["completed", 1, { done: 1, total: 1 }, null, { who: "me" }],
        );
        assert.ok(done.queue_ms !== null && done.started_at !== null && done.ended_at !== null);
        assert.deepEqual(
          done.plan.map(({ what }) => what),
          ["queued", "claimed", "ended"],
        );
        const result = await ask(gateway, `/${job.id}/result`);
        assert.equal(result.status, 200);
        assert.match(result.headers["content-type"] ?? "", /^application\/json/);
        assert.equal((JSON.parse(result.text) as { object: string }).object, "chat.completion");
        assert.equal(entriesOf(engine.ledger().entries, "job").length, 1);
      });
    });

    test("a stream is kept byte for byte, and one that ends without a finish reason is no result [20.J1 10.X5b]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          const good = await accepted(gateway, { body: { ...aChat(), stream: true } });
          assert.equal((await ended(gateway, good.id)).state, "completed");
          const result = await ask(gateway, `/${good.id}/result`);
          assert.match(result.headers["content-type"] ?? "", /event-stream/);
          assert.match(result.text, /data: \[DONE\]\n\n$/);
          const bad = await accepted(gateway, {
            body: { ...aChat({ errorEventAfter: 1, thenDone: true }, "bad"), stream: true },
          });
          const failed = await ended(gateway, bad.id);
          assert.deepEqual([failed.state, failed.error?.code, failed.attempts], ["failed", "UPSTREAM_ERROR", 3]);
        },
        { upstream: { retry: { attempts: 0 } } },
      );
    });

    test("submit and wait answers with the result when it comes in time, else with the job [20.F1]", async () => {
      await withGateway(mode, async (gateway) => {
        const fast = await submit(gateway, { body: aChat() }, { query: "?wait=20" });
        assert.equal(fast.status, 200);
        assert.equal((JSON.parse(fast.text) as { object: string }).object, "chat.completion");
        const slow = await submit(gateway, { body: aChat({ delayHeadMs: 60_000 }) }, { query: "?wait=1" });
        assert.equal(slow.status, 202);
        assert.equal((JSON.parse(slow.text) as { state: string }).state, "running");
        for (const wait of ["-1", "x", "301", "1.5"])
          assert.equal((await submit(gateway, { body: aChat() }, { query: `?wait=${wait}` })).status, 400);
      });
    });

    test("submit and wait tells of a failure as the call would have, with the job that failed [20.F1 20.J2]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          const words = { error: { message: "no such thing" } };
          const query = "?wait=20";
          const refused = await submit(gateway, { body: aChat({ status: 422, body: words }) }, { query });
          assert.deepEqual([refused.status, JSON.parse(refused.text)], [422, words]);
          const broken = await submit(gateway, { body: aChat({ cutBeforeHead: true }) }, { query });
          assert.deepEqual([broken.status, errorCodeOf(broken.text)], [502, "UPSTREAM_ERROR"]);
          for (const { headers } of [refused, broken]) {
            const id = String(headers["x-yardmaster-job"]);
            assert.equal(headers["location"], `/v1/jobs/${id}`);
            assert.equal((await jobOf(gateway, id)).state, "failed");
          }
        },
        { file: { jobs: { max_attempts: 1 } } },
      );
    });

    test("a job that makes its engine break off starts one for each attempt, on whichever endpoint, and no more [80.G5]", async () => {
      const second = await anEngine();
      await withGateway(
        mode,
        async (gateway) => {
          // Both keep a connection open, on which a break would be taken for a stale one.
          for (let i = 0; i < 4; i += 1) assert.equal((await call(gateway, { body: aChat({}, "warm") })).status, 200);
          const failed = await ended(gateway, (await accepted(gateway, { body: aChat({ cutBeforeHead: true }) })).id);
          assert.deepEqual([failed.state, failed.error?.code, failed.attempts], ["failed", "UPSTREAM_ERROR", 2]);
          const starts = [engine, second].flatMap((one) => entriesOf(one.ledger().entries, "job"));
          assert.equal(starts.length, 2);
        },
        {
          upstream: { endpoints: [{ url: engine.url }, { url: second.url }] },
          file: { jobs: { max_attempts: 2 } },
        },
      );
      await second.close();
    });

    test("cancelling aborts the engine's request at once, and an ended job has no result [20.J1]", async () => {
      await withGateway(mode, async (gateway) => {
        const job = await accepted(gateway, { body: aChat({ delayHeadMs: 60_000 }) });
        await eventually(
          "the engine to work",
          () => engine.ledger().concurrentNow,
          (count) => count === 1,
        );
        const cancelled = await ask(gateway, `/${job.id}`, { method: "DELETE" });
        assert.equal((JSON.parse(cancelled.text) as { state: string }).state, "cancelled");
        await eventually(
          "the abort",
          () => engine.ledger().aborted,
          (count) => count === 1,
        );
        const result = await ask(gateway, `/${job.id}/result`);
        assert.deepEqual([result.status, errorCodeOf(result.text)], [409, "JOB_CANCELLED"]);
        assert.equal((await ask(gateway, `/${job.id}`, { method: "DELETE" })).status, 200, "told twice");
        assert.equal(await gateway.metric('yardmaster_job_claims_lost_total{why="ended"}'), 1);
      });
    });

    test("an engine's refusal is final and kept as the result; its 503 is tried three times, the ledger says so [20.J3]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          const refused = await accepted(gateway, {
            body: aChat({ status: 422, body: { error: { message: "no" } } }, "refused"),
          });
          const failed = await ended(gateway, refused.id);
          assert.deepEqual([failed.state, failed.error?.code, failed.result?.status], ["failed", "ENGINE_ERROR", 422]);
          assert.equal((await ask(gateway, `/${refused.id}/result`)).status, 422);
          assert.equal(entriesOf(engine.ledger().entries, "refused").length, 1);
          const away = await accepted(gateway, { body: aChat({ status: 503 }, "away") });
          const last = await ended(gateway, away.id);
          assert.deepEqual([last.state, last.attempts], ["failed", 3]);
          const starts = entriesOf(engine.ledger().entries, "away").map((entry) => entry.openedMs);
          assert.equal(starts.length, 3);
          assert.ok(starts[1]! - starts[0]! >= 1_000 && starts[2]! - starts[1]! >= 4_000, starts.join());
        },
        { upstream: { retry: { attempts: 0 } } },
      );
    });

    test("parts run at most fanout_max at once, are tried each by itself, and come back in order [20.J6]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          const parts = Array.from({ length: 40 }, (_, i) => ({
            body: { ...aChat({ delayHeadMs: 20 + (i % 3) * 10 }), user: `u${i}` },
          }));
          const job = await accepted(gateway, { parts });
          const done = await ended(gateway, job.id);
          assert.deepEqual(
            [done.state, done.progress],
            ["completed", { done: 40, total: 40 }],
            JSON.stringify(done.plan),
          );
          const entries = entriesOf(engine.ledger().entries, "job");
          assert.equal(entries.length, 40);
          assert.ok(peakOf(entries) <= 5, `${peakOf(entries)} at once`);
          const result = JSON.parse((await ask(gateway, `/${job.id}/result`)).text) as {
            data: { index: number; status: number; body: { object: string } }[];
          };
          assert.deepEqual(
            result.data.map(({ index }) => index),
            parts.map((_, i) => i),
          );
          assert.ok(result.data.every(({ status, body }) => status === 200 && body.object === "chat.completion"));
        },
        { file: { jobs: { fanout_max: 5 } } },
      );
    });

    test("a part that fails for good fails the job and is named, or is listed where some may fail [20.J6]", async () => {
      await withGateway(mode, async (gateway) => {
        const parts = [0, 1, 2, 3].map((i) => ({ body: aChat(i === 2 ? { status: 400 } : {}) }));
        const strict = await ended(gateway, (await accepted(gateway, { parts })).id);
        assert.deepEqual([strict.state, strict.error?.code], ["failed", "JOB_PARTS_FAILED"]);
        assert.match(strict.error?.message ?? "", /1 of 4 parts failed: 2/);
        const partial = await ended(gateway, (await accepted(gateway, { parts, allow_partial: true })).id);
        assert.equal(partial.state, "completed");
        const { data } = JSON.parse((await ask(gateway, `/${partial.id}/result`)).text) as {
          data: { index: number; error: { code: string } | null }[];
        };
        assert.deepEqual(
          data.map(({ error }) => error?.code ?? null),
          [null, null, "ENGINE_ERROR", null],
        );
      });
    });

    test("one's own jobs are listed, and another key's job is to a client what a missing one is [20.J1 80.D7]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          const job = await accepted(gateway, { body: aChat() });
          await ended(gateway, job.id);
          const missing = job.id.slice(0, -22) + "A".repeat(22);
          for (const [method, path] of [
            ["GET", ""],
            ["GET", "/result"],
            ["GET", "/events"],
            ["DELETE", ""],
          ] as const) {
            const other = await ask(gateway, `/${job.id}${path}`, { method, key: OTHER });
            const none = await ask(gateway, `/${missing}${path}`, { method, key: OTHER });
            assert.equal(other.status, 404);
            const without = (text: string): string => text.replace(/"request_id":"[^"]*"/, "");
            assert.equal(without(other.text), without(none.text));
            assert.equal(errorCodeOf(other.text), "JOB_UNKNOWN");
          }
          const list = async (key: string): Promise<string[]> =>
            (JSON.parse((await ask(gateway, "?limit=10", { key })).text) as { data: { id: string }[] }).data.map(
              ({ id }) => id,
            );
          assert.deepEqual(await list(gateway.keys.client), [job.id]);
          assert.deepEqual(await list(OTHER), []);
          assert.deepEqual(await list(gateway.keys.operator), [job.id]);
          assert.equal((await jobOf(gateway, job.id, "", gateway.keys.operator)).key, "test-client");
          for (const odd of ["x", "..%2f..", "job_00000000_' OR 1=1", "%00", "a".repeat(300)])
            assert.ok([400, 404].includes((await ask(gateway, `/${encodeURIComponent(odd)}`)).status), odd);
        },
        { keys: [{ id: "other", key: OTHER, role: "client" }] },
      );
    });

    test("events tell each state once and go on behind the last one that was seen [20.J1]", async () => {
      await withGateway(mode, async (gateway) => {
        const job = await accepted(gateway, { body: aChat({ delayHeadMs: 700 }) });
        const stream = startCall(gateway, { method: "GET", path: `/v1/jobs/${job.id}/events` });
        const all = await stream.answer;
        assert.ok(all.whole);
        const events = all.text.split("\n\n").filter((text) => text.startsWith("event: job"));
        const states = events.map(
          (text) => (JSON.parse(/data: (.*)/.exec(text)?.[1] ?? "") as { state: string }).state,
        );
        assert.equal(states.at(-1), "completed");
        assert.ok(states.includes("running"), states.join());
        const ids = events.map((text) => /id: (\S+)/.exec(text)?.[1] ?? "");
        assert.equal(new Set(ids).size, ids.length);
        const again = await ask(gateway, `/${job.id}/events`, { headers: { "last-event-id": ids.at(-2) ?? "" } });
        assert.equal(again.text.split("event: job").length - 1, 1);
      });
    });

    test("a submit that can't be is refused with every mistake named, and one over the bounds with 429 [20.J1 80.D10 80.C19]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          const refusals: readonly (readonly [Record<string, unknown>, number, string])[] = [
            [{ body: aChat(), model: "other" }, 400, "BAD_REQUEST"],
            [{ body: { ...aChat(), model: "nobody" } }, 404, "MODEL_UNKNOWN"],
            [{ upstream: "nowhere", path: "/x" }, 404, "UPSTREAM_UNKNOWN"],
            [{ upstream: "u", path: "/x" }, 404, "UPSTREAM_UNKNOWN"],
            [{ body: aChat(), path: "/v1/models" }, 400, "BAD_REQUEST"],
            [{ body: aChat(), path: "/v1/jobs" }, 400, "BAD_REQUEST"],
            [{ body: aChat(), path: "/v1/../admin/keys" }, 400, "BAD_REQUEST"],
            [{ body: aChat(), path: "/v1/load_lora_adapter" }, 403, "FORBIDDEN"],
            [{ body: aChat(), state: "completed", id: "job_x", __proto__: null, nope: 1 }, 400, "BAD_REQUEST"],
            [{ body: aChat(), parts: [{ body: aChat() }] }, 400, "BAD_REQUEST"],
            [{}, 400, "BAD_REQUEST"],
            [{ body: aChat(), callback_url: "https://hooks.example.com/" }, 422, "CALLBACK_FORBIDDEN"],
          ];
          for (const [job, status, code] of refusals) {
            const answer = await submit(gateway, job);
            assert.deepEqual(
              [answer.status, errorCodeOf(answer.text)],
              [status, code],
              JSON.stringify(job) + answer.text,
            );
          }
          // Read without harm, these would break what writes them again for the engine or the store.
          const deep = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
          for (const text of [
            `{"model":"m","body":{"messages":[],"x":${deep}}}`,
            `{"model":"m","parts":[{"body":{"x":${deep}}}]}`,
            `{"model":"m","body":{},"metadata":{"x":${deep}}}`,
            deep,
          ]) {
            const answer = await call(gateway, { path: "/v1/jobs", body: Buffer.from(text) });
            assert.deepEqual([answer.status, errorCodeOf(answer.text)], [400, "BAD_JSON"], text.slice(0, 40));
          }
          const named = await submit(gateway, { body: aChat(), nope: 1, deadline_s: -1, parts: [] });
          for (const name of ["nope", "deadline_s", "parts"]) assert.match(named.text, new RegExp(name));
          for (const key of ["", "a b", "k".repeat(256)])
            assert.equal(
              (await submit(gateway, { body: aChat() }, { headers: { "idempotency-key": key } })).status,
              400,
            );
          const huge = await call(gateway, { path: "/v1/jobs", body: Buffer.alloc(300_000, 0x20) });
          assert.deepEqual([huge.status, errorCodeOf(huge.text)], [413, "BODY_TOO_LARGE"]);
          assert.equal(engine.ledger().opened, 0);
          for (let i = 0; i < 3; i += 1) await accepted(gateway, { body: aChat() });
          const full = await submit(gateway, { body: aChat() });
          assert.deepEqual([full.status, errorCodeOf(full.text)], [429, "QUEUE_FULL"]);
          assert.ok(Number(full.headers["retry-after"]) >= 1);
        },
        { file: { jobs: { max_jobs: 3, max_body_bytes: 200_000 } } },
      );
    });

    test("a submit under a key is made once, replayed as such, and refused with another body [20.J5 80.G16]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          const headers = { "idempotency-key": "one" };
          const many = await Promise.all(
            Array.from({ length: 50 }, () => submit(gateway, { body: aChat() }, { headers })),
          );
          const ids = new Set(many.map(({ text }) => (JSON.parse(text) as { id: string }).id));
          assert.equal(ids.size, 1);
          assert.equal(many.filter((answer) => answer.headers["idempotent-replayed"] === "true").length, 49);
          const [id = ""] = ids;
          assert.equal((await ended(gateway, id)).state, "completed");
          const after = await submit(gateway, { body: aChat() }, { headers });
          assert.deepEqual(
            [after.headers["idempotent-replayed"], (JSON.parse(after.text) as { state: string }).state],
            ["true", "completed"],
          );
          const other = await submit(gateway, { body: aChat({ tokens: 3 }) }, { headers });
          assert.deepEqual([other.status, errorCodeOf(other.text)], [422, "IDEMPOTENCY_MISMATCH"]);
          const tenant = await submit(gateway, { body: aChat({ tokens: 3 }) }, { headers, key: OTHER });
          assert.equal(tenant.status, 202);
          assert.equal(entriesOf(engine.ledger().entries, "job").length <= 2, true);
        },
        { keys: [{ id: "other", key: OTHER, role: "client", classes: ["batch"] }] },
      );
    });

    test("each job ends in one audit event, whatever its attempts, and its calls in none [10.O1 20.J2]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          const good = await accepted(gateway, { body: aChat() });
          const bad = await accepted(gateway, { body: aChat({ status: 500 }) });
          const left = await accepted(gateway, { body: aChat({ delayHeadMs: 60_000 }) });
          await ended(gateway, good.id);
          await ended(gateway, bad.id);
          await ask(gateway, `/${left.id}`, { method: "DELETE" });
          const { records } = await gateway.audit("?limit=100");
          const about = records.filter(({ requestId }) => requestId.startsWith("job_"));
          assert.deepEqual(
            about.map(({ requestId, outcome, errorCode, route }) => [requestId, outcome, errorCode, route]).sort(),
            [
              [good.id, "ok", null, "/v1/jobs"],
              [bad.id, "engine_error", "ENGINE_ERROR", "/v1/jobs"],
              [left.id, "cancelled", null, "/v1/jobs"],
            ].sort(),
          );
          assert.ok(about.some(({ completionTokens }) => completionTokens === 2));
        },
        { upstream: { retry: { attempts: 0 } } },
      );
    });

    test("a thousand waiting jobs never put more on the engine than the class may have, and people's calls go before them [20.J6 80.I3]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          // The first call of all waits until the shared slots are known.
          await call(gateway, { class: "interactive", body: { ...aChat({}, "first") } });
          const jobs = await Promise.all(
            Array.from({ length: 120 }, () => accepted(gateway, { body: aChat({ delayHeadMs: 30 }) })),
          );
          const person = await call(gateway, { class: "interactive", body: { ...aChat({}, "person") } });
          assert.equal(person.status, 200);
          // Among several gateways a slot is asked for, which takes a moment.
          assert.ok((person.queueMs ?? Infinity) <= (mode === "local" ? 0 : 500), `${person.queueMs} ms`);
          for (const job of jobs) assert.equal((await ended(gateway, job.id)).state, "completed");
          const entries = entriesOf(engine.ledger().entries, "job");
          assert.equal(entries.length, 120);
          assert.ok(peakOf(entries) <= 3, `${peakOf(entries)} at once`);
        },
        { upstream: { slots: 4, batch_max: 3 } },
      );
    });

    test("a job for an upstream whose engine is away waits in the store and costs no attempt [20.J9]", async () => {
      await withGateway(
        mode,
        async (gateway) => {
          const job = await accepted(gateway, { body: aChat(), deadline_s: 3 });
          const failed = await ended(gateway, job.id);
          assert.deepEqual([failed.state, failed.attempts], ["failed", 0]);
        },
        { upstream: { endpoints: [{ url: "http://127.0.0.1:9" }] } },
      );
    });

    test("a job may call an upstream of kind http, with any method", async () => {
      await withGateway(mode, async (gateway) => {
        const job = await accepted(gateway, { upstream: "plain", method: "GET", path: "/v1/models" });
        assert.equal((await ended(gateway, job.id)).state, "completed");
        assert.match((await ask(gateway, `/${job.id}/result`)).text, /"object": ?"list"/);
      });
    });
  });
}
