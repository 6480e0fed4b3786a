import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import type OpenAI from "openai";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { startRedis } from "../../src/testing/servers/redis-server.ts";
import type { TestServer } from "../../src/testing/servers/server-process.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import {
  aClient,
  aLine,
  customId,
  ENDPOINT,
  linesOf,
  manyLines,
  over,
  submit,
  until,
  upload,
} from "./support/batches.ts";
import { aChat } from "./support/jobs.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./support/test-gateway.ts";

// The Batch API by the official client, over real sockets; the same for both stores.

let engine: SimEngine;
let redis: TestServer;
let prefixes = 0;

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
    key_prefix: `b${process.pid}-${(prefixes += 1)}`,
    coordination_timeout_ms: 2_000,
  }),
} as const;

async function withGateway(
  mode: keyof typeof MODES,
  run: (client: OpenAI, gateway: TestGateway) => Promise<void>,
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
      { id: "u", models: ["m", "m-alias"], engine: "vllm", slots: 16, endpoints: [{ url: engine.url }], ...upstream },
    ],
  });
  try {
    await run(aClient(gateway.port, gateway.keys.client), gateway);
  } finally {
    await gateway.stop();
  }
}

const OTHER = "CANARY-other-0123456789abcdef0123456789abcdef";
const other = { id: "other", key: OTHER, role: "client", classes: ["batch"] };

for (const mode of ["local", "redis"] as const) {
  describe(`batches (${mode})`, () => {
    test("a batch's answers come back line by line in the order of the input, errors in a file of their own [20.J7]", async () => {
      await withGateway(mode, async (client, gateway) => {
        const refused = { status: 400, body: { error: { message: "no", type: "invalid_request_error" } } };
        const text = manyLines(450, (index) => (index % 100 === 50 ? refused : {}));
        const created = await submit(client, text, { metadata: { who: "me" } });
        assert.equal(created.object, "batch");
        assert.equal(created.status, "validating");
        assert.deepEqual(created.metadata, { who: "me" });
        const batch = await over(client, created.id);
        assert.equal(batch.status, "completed", JSON.stringify(batch));
        assert.deepEqual(batch.request_counts, { total: 450, completed: 446, failed: 4 });
        assert.ok((batch.completed_at ?? 0) >= (batch.in_progress_at ?? Infinity));
        const output = await linesOf(client, batch.output_file_id);
        const wanted = Array.from({ length: 450 }, (_, index) => index);
        assert.deepEqual(
          output.map((line) => line.custom_id),
          wanted.filter((index) => index % 100 !== 50).map(customId),
        );
        assert.ok(output.every(({ response, error }) => response?.status_code === 200 && error === null));
        assert.equal(output[0]?.response?.body["object"], "chat.completion");
        const errors = await linesOf(client, batch.error_file_id);
        assert.deepEqual(
          errors.map((line) => [line.custom_id, line.response?.status_code]),
          wanted.filter((index) => index % 100 === 50).map((index) => [customId(index), 400]),
        );
        assert.equal(new Set([...output, ...errors].map(({ id }) => id)).size, 450);
        // Each line is on record as any other call is, under the id that its answer names.
        const requestId = output[7]?.response?.request_id ?? "";
        const { records } = await gateway.audit("?limit=1000");
        assert.equal(records.find((each) => each.requestId === requestId)?.class, "batch");
        assert.equal(records.filter(({ route }) => route === ENDPOINT).length, 450);
      });
    });

    test("files are listed, shown, read and deleted as the client expects; one that a batch reads stays [20.J7]", async () => {
      await withGateway(mode, async (client) => {
        const text = manyLines(3);
        const ids: string[] = [];
        for (let i = 0; i < 5; i += 1) ids.push((await upload(client, text, `../in\u202e-${i}.jsonl`)).id);
        const file = await client.files.retrieve(ids[0] ?? "");
        assert.deepEqual(
          [file.bytes, file.filename, file.purpose, file.status],
          [text.length, "in-0.jsonl", "batch", "processed"],
        );
        assert.equal(await (await client.files.content(file.id)).text(), text);
        const listed: string[] = [];
        for await (const each of client.files.list({ limit: 2, order: "asc" })) listed.push(each.id);
        assert.deepEqual(listed, ids);
        assert.deepEqual(await client.files.delete(file.id), { id: file.id, object: "file", deleted: true });
        await assert.rejects(client.files.retrieve(file.id), { status: 404, code: "FILE_UNKNOWN" });
        const held = ids[1] ?? "";
        const slow = aLine("slow", { delayHeadMs: 60_000 });
        const reading = await upload(client, `${slow}\n`);
        const batch = await client.batches.create({
          input_file_id: reading.id,
          endpoint: ENDPOINT,
          completion_window: "24h",
        });
        await assert.rejects(client.files.delete(reading.id), { status: 409, code: "FILE_IN_USE" });
        await client.batches.cancel(batch.id);
        await over(client, batch.id);
        await client.files.delete(reading.id);
        await client.files.delete(held);
      });
    });

    test("what is wrong with an input is told line by line, and no line of it runs [20.J7 80.D8]", async () => {
      const keys = [{ ...other, models: ["m"] }];
      await withGateway(
        mode,
        async (_, gateway) => {
          const client = aClient(gateway.port, OTHER);
          const good = { model: "m", messages: [] };
          const rows: readonly (readonly [line: string, code: string])[] = [
            ["{", "invalid_json_line"],
            [JSON.stringify({ method: "POST", url: ENDPOINT, body: good }), "missing_required_parameter"],
            [aLine("a"), "duplicate_custom_id"],
            [aLine("b", {}, { method: "GET" }), "invalid_method"],
            [aLine("c", {}, { url: "/v1/embeddings" }), "mismatched_endpoint"],
            [aLine("d", {}, { url: "/v1/../admin/keys" }), "mismatched_endpoint"],
            [aLine("e", {}, { body: { ...good, model: "gone" } }), "model_not_found"],
            [aLine("f", {}, { body: { ...good, model: "m-alias" } }), "model_forbidden"],
            [aLine("g", {}, { body: { ...good, model: "M-alias" } }), "model_not_found"],
            [aLine("h", {}, { body: { ...good, model: " m-alias" } }), "model_not_found"],
            [aLine("i", {}, { body: { ...good, model: ["m", "m-alias"] } }), "invalid_type"],
            [
              `{"custom_id":"j","method":"POST","url":"${ENDPOINT}","body":{"model":"m","mod\\u0065l":"m-alias","messages":[]}}`,
              "invalid_body",
            ],
            [
              `{"custom_id":"k","method":"POST","url":"${ENDPOINT}","body":{"model":"m"},"body":{"model":"m-alias"}}`,
              "invalid_json_line",
            ],
            [aLine("l", {}, { body: { ...good, stream: true } }), "invalid_stream"],
          ];
          const text = `${aLine("a")}\n\n${rows.map(([line]) => line).join("\n")}`;
          const batch = await over(client, (await submit(client, text)).id);
          assert.equal(batch.status, "failed");
          assert.deepEqual(
            batch.errors?.data?.map(({ line, code }) => [line, code]),
            rows.map(([, code], index) => [index + 3, code]),
          );
          assert.equal(engine.ledger().entries.length, 0);
          assert.equal(batch.output_file_id, null);
          const empty = await over(client, (await submit(client, " \n\n")).id);
          assert.deepEqual(
            empty.errors?.data?.map(({ code }) => code),
            ["empty_file"],
          );
        },
        { keys },
      );
    });

    test("another key's file and batch are as ones that are not there [20.J7 80.D7]", async () => {
      await withGateway(
        mode,
        async (client, gateway) => {
          const stranger = aClient(gateway.port, OTHER);
          const file = await upload(client, manyLines(1));
          const batch = await client.batches.create({
            input_file_id: file.id,
            endpoint: ENDPOINT,
            completion_window: "24h",
          });
          const said = async (act: Promise<unknown>): Promise<unknown> => {
            const error = (await act.then(
              () => null,
              (thrown: unknown) => thrown,
            )) as InstanceType<typeof OpenAI.APIError> | null;
            const { request_id: _, ...body } = (error?.error ?? {}) as Record<string, unknown>;
            return [error?.status, body];
          };
          const each = (id: string, batchId: string): Promise<unknown>[] => [
            said(stranger.files.retrieve(id)),
            said(stranger.files.content(id)),
            said(stranger.files.delete(id)),
            said(stranger.batches.create({ input_file_id: id, endpoint: ENDPOINT, completion_window: "24h" })),
            said(stranger.batches.retrieve(batchId)),
            said(stranger.batches.cancel(batchId)),
            said(stranger.files.list({ after: id }) as unknown as Promise<unknown>),
          ];
          const theirs = await Promise.all(each(file.id, batch.id));
          assert.deepEqual(
            theirs,
            await Promise.all(each("file-AAAAAAAAAAAAAAAAAAAAAAAA", "batch_AAAAAAAAAAAAAAAAAAAAAAAA")),
          );
          assert.deepEqual((theirs[0] as [number])[0], 404);
          assert.deepEqual((await stranger.files.list()).data, []);
          assert.deepEqual((await stranger.batches.list()).data, []);
          assert.equal((await over(client, batch.id)).status, "completed");
        },
        { keys: [other] },
      );
    });

    test("a batch that is cancelled keeps what is done, and says of every other line that it was not carried out [20.J7]", async () => {
      await withGateway(mode, async (client) => {
        const created = await submit(
          client,
          manyLines(2_000, (index) => (index < 10 ? {} : { delayHeadMs: 60_000 })),
        );
        await until(client, created.id, ({ request_counts }) => (request_counts?.completed ?? 0) === 10);
        const cancelling = await client.batches.cancel(created.id);
        assert.equal(cancelling.status, "cancelling");
        const batch = await over(client, created.id);
        assert.equal(batch.status, "cancelled");
        assert.ok(batch.cancelled_at !== null && batch.cancelling_at !== null);
        assert.deepEqual(batch.request_counts, { total: 2_000, completed: 10, failed: 1_990 });
        const output = await linesOf(client, batch.output_file_id);
        assert.deepEqual(
          output.map(({ custom_id }) => custom_id),
          Array.from({ length: 10 }, (_, index) => customId(index)),
        );
        const errors = await linesOf(client, batch.error_file_id);
        assert.equal(errors.length, 1_990);
        assert.ok(errors.every(({ error, response }) => error?.code === "batch_cancelled" && response === null));
        await eventually(
          "no call at the engine",
          () => engine.ledger().concurrentNow,
          (now) => now === 0,
        );
        assert.equal((await client.batches.cancel(created.id)).status, "cancelled");
      });
    });

    test("a batch whose window is over keeps what is done, and its other lines are told as expired [20.J7]", async () => {
      await withGateway(mode, async (client) => {
        const text = manyLines(300, (index) => (index < 5 ? {} : { delayHeadMs: 60_000 }));
        const batch = await over(client, (await submit(client, text, { window: "6s" })).id);
        assert.equal(batch.status, "expired");
        assert.deepEqual(batch.request_counts, { total: 300, completed: 5, failed: 295 });
        assert.equal((await linesOf(client, batch.output_file_id)).length, 5);
        const errors = await linesOf(client, batch.error_file_id);
        assert.ok(errors.every(({ error }) => error?.code === "batch_expired"));
        assert.equal(errors.length, 295);
      });
    });

    test("lines of several models run each at its own upstream, and lists go page by page [20.J7]", async () => {
      await withGateway(mode, async (client) => {
        const text = Array.from({ length: 30 }, (_, index) =>
          aLine(customId(index), {}, { body: { ...aChat(), model: index % 3 === 0 ? "m-alias" : "m" } }),
        ).join("\n");
        const ids: string[] = [];
        for (let i = 0; i < 3; i += 1) ids.push((await submit(client, text)).id);
        for (const id of ids) {
          const batch = await over(client, id);
          assert.equal(batch.status, "completed");
          assert.deepEqual(
            (await linesOf(client, batch.output_file_id)).map(({ custom_id }) => custom_id),
            Array.from({ length: 30 }, (_, index) => customId(index)),
          );
        }
        const listed: string[] = [];
        for await (const each of client.batches.list({ limit: 2 })) listed.push(each.id);
        assert.deepEqual(listed, ids.toReversed());
      });
    });
  });
}
