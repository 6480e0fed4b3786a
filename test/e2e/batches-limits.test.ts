import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, beforeEach, describe, test } from "node:test";
import type OpenAI from "openai";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aClient, aLine, ENDPOINT, linesOf, manyLines, over, submit, upload } from "./support/batches.ts";
import { call } from "./support/calls.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./support/test-gateway.ts";

// What a batch and its files may take, and how a refusal looks to the official client.

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

const OTHER = "CANARY-other-0123456789abcdef0123456789abcdef";

async function withGateway(
  run: (client: OpenAI, gateway: TestGateway) => Promise<void>,
  more: Omit<TestGatewayOptions, "upstreams"> & { readonly upstream?: Record<string, unknown> } = {},
): Promise<void> {
  const { upstream, ...options } = more;
  const gateway = await startTestGateway({
    ...options,
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 8, endpoints: [{ url: engine.url }], ...upstream }],
  });
  try {
    await run(aClient(gateway.port, gateway.keys.client), gateway);
  } finally {
    await gateway.stop();
  }
}

const refusedWith =
  (status: number, code: string) =>
  (error: unknown): boolean => {
    const { status: got, code: said } = error as { status?: number; code?: string };
    assert.deepEqual([got, said], [status, code]);
    return true;
  };

for (const server of ["net", "http"]) {
  describe(`uploads (client_server: ${server})`, () => {
    test("a file over the limit is refused with 413, told ahead or not, and nothing of it is kept [20.J7]", async () => {
      const file = { client_server: server, batches: { max_file_bytes: 2_000_000 } };
      await withGateway(
        async (client, gateway) => {
          await assert.rejects(upload(client, Buffer.alloc(2_000_001, 0x20)), refusedWith(413, "BODY_TOO_LARGE"));
          const boundary = "b";
          const chunked = [
            `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n`,
            " ".repeat(2_100_000),
          ];
          using raw = await RawClient.connect(gateway.port);
          const head = [
            "POST /v1/files HTTP/1.1",
            "Host: g",
            `Authorization: Bearer ${gateway.keys.client}`,
            `Content-Type: multipart/form-data; boundary=${boundary}`,
            "Transfer-Encoding: chunked",
          ];
          await raw.write(Buffer.from(`${head.join("\r\n")}\r\n\r\n`));
          for (const part of chunked)
            await raw.write(Buffer.from(`${Buffer.byteLength(part).toString(16)}\r\n${part}\r\n`));
          await raw.readUntil("BODY_TOO_LARGE");
          assert.equal((await upload(client, Buffer.alloc(2_000_000, 0x20))).bytes, 2_000_000);
          await eventually(
            "one file kept",
            () => gateway.metric("yardmaster_files_bytes"),
            (bytes) => bytes === 2_000_000,
          );
        },
        { file },
      );
    });

    test("a large file comes back byte for byte, and its upload does not wait for the event loop [20.J7]", async () => {
      await withGateway(
        async (client) => {
          const text = Buffer.alloc(24_000_000);
          for (let i = 0; i < text.length; i += 1) text[i] = (i * 31 + (i >> 8)) & 0xff;
          const file = await upload(client, text);
          const back = Buffer.from(await (await client.files.content(file.id)).arrayBuffer());
          assert.ok(back.equals(text));
        },
        { file: { client_server: server } },
      );
    });
  });
}

test("bounds on bytes, files, open batches and lines are refused with codes that stay [20.J7 80.I9]", async () => {
  const file = {
    batches: {
      max_file_bytes: 1_000_000,
      max_key_bytes: 1_500_000,
      max_files: 9,
      max_open: 1,
      max_lines: 3,
      max_window_h: 1,
    },
  };
  await withGateway(
    async (client) => {
      const kept = await upload(client, Buffer.alloc(900_000, 0x20));
      await assert.rejects(upload(client, Buffer.alloc(900_000, 0x20)), refusedWith(429, "FILES_FULL"));
      await client.files.delete(kept.id);
      await assert.rejects(submit(client, manyLines(1), { window: "24h" }), refusedWith(400, "BAD_REQUEST"));
      await assert.rejects(submit(client, manyLines(1), { window: "0h" }), refusedWith(400, "BAD_REQUEST"));
      const tooMany = await over(client, (await submit(client, manyLines(4), { window: "1h" })).id);
      assert.deepEqual(
        tooMany.errors?.data?.map(({ code }) => code),
        ["too_many_tasks"],
      );
      const slow = await submit(client, aLine("a", { delayHeadMs: 60_000 }), { window: "1h" });
      await assert.rejects(submit(client, manyLines(1), { window: "1h" }), refusedWith(429, "FILES_FULL"));
      await client.batches.cancel(slow.id);
      await over(client, slow.id);
      await assert.rejects(client.batches.cancel(tooMany.id), refusedWith(409, "BATCH_OVER"));
      await assert.rejects(
        async () => {
          for (let i = 0; i < 9; i += 1) await upload(client, "x");
        },
        refusedWith(429, "FILES_FULL"),
      );
    },
    { file },
  );
});

test("a key without class batch makes no batch, and a route that is none of the API's is refused [20.J7]", async () => {
  const keys = [{ id: "other", key: OTHER, role: "client", classes: ["interactive"] }];
  await withGateway(
    async (client, gateway) => {
      await assert.rejects(submit(aClient(gateway.port, OTHER), manyLines(1)), refusedWith(403, "CLASS_FORBIDDEN"));
      for (const endpoint of ["/admin/keys", "/v1/jobs", "/v1/batches", "/upstreams/u/x", "v1/embeddings"])
        await assert.rejects(
          submit(client, manyLines(1), { endpoint: endpoint as OpenAI.BatchCreateParams["endpoint"] }),
          refusedWith(400, "BAD_REQUEST"),
        );
      const answer = await call(gateway, { path: "/v1/batches", body: { __proto__: { admin: true }, role: "admin" } });
      assert.equal(answer.status, 400);
    },
    { keys },
  );
});

test("lines never hold more slots than batch_max, and a person's call goes before them [20.J7 10.A2]", async () => {
  await withGateway(
    async (client, gateway) => {
      const { id } = await submit(
        client,
        manyLines(60, () => ({ delayHeadMs: 300 })),
      );
      await eventually(
        "the batch's share at the engine",
        () => engine.ledger().concurrentNow,
        (now) => now === 3,
      );
      const mine = await call(gateway, {
        class: "interactive",
        body: { model: "m", messages: [{ role: "user", content: "hi" }], sim: { tokens: 1 } },
      });
      assert.deepEqual([mine.status, (mine.queueMs ?? 0) < 200], [200, true]);
      const batch = await over(client, id);
      assert.deepEqual(batch.request_counts, { total: 60, completed: 60, failed: 0 });
      assert.ok(engine.ledger().concurrentPeak <= 4);
    },
    { upstream: { batch_max: 3 } },
  );
});

test("lines that a limit of the key holds back are carried out when it lets them [20.J7 60.K3]", async () => {
  const keys = [{ id: "other", key: OTHER, role: "client", classes: ["batch"], limits: { max_in_flight: 2 } }];
  await withGateway(
    async (_, gateway) => {
      const client = aClient(gateway.port, OTHER);
      const batch = await over(
        client,
        (
          await submit(
            client,
            manyLines(12, () => ({ delayHeadMs: 20 })),
          )
        ).id,
      );
      assert.deepEqual(batch.request_counts, { total: 12, completed: 12, failed: 0 });
      assert.equal((await linesOf(client, batch.output_file_id)).length, 12);
    },
    { keys },
  );
});

test("who uses neither files nor batches has no file and no thread of theirs, and asks in vain [20.J7]", async () => {
  await withGateway(async (client, gateway) => {
    assert.deepEqual((await client.files.list()).data, []);
    assert.deepEqual((await client.batches.list()).data, []);
    await assert.rejects(client.files.retrieve("file-x"), refusedWith(404, "FILE_UNKNOWN"));
    await assert.rejects(client.batches.retrieve("batch_x"), refusedWith(404, "BATCH_UNKNOWN"));
    await assert.rejects(
      client.batches.create({ input_file_id: "file-x", endpoint: ENDPOINT, completion_window: "24h" }),
      refusedWith(404, "FILE_UNKNOWN"),
    );
    const { dataDir } = gateway.configOf({ upstreams: [] });
    assert.equal(existsSync(`${dataDir}/files.db`), false);
    assert.equal(await gateway.metric("yardmaster_batches_open"), undefined);
  });
});

test("a batch that asks for what there is not is refused with the member's name [20.J7]", async () => {
  await withGateway(async (client) => {
    const ask = { input_file_id: "file-x", endpoint: ENDPOINT, completion_window: "24h" } as const;
    const more = { ...ask, priority: 1 };
    await assert.rejects(client.batches.create(more), /^Error: 400 Unrecognized key: "priority"$/);
    await assert.rejects(
      client.batches.create({ ...ask, completion_window: "1x" as "24h" }),
      /400 completion_window: /,
    );
  });
});
