import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { RawClient } from "../../src/testing/raw-client.ts";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { aChat, ask, heard, requestBytes } from "./support/raw-answers.ts";
import {
  aChunk,
  aCompletion,
  aFinish,
  anEvent,
  aToken,
  DONE,
  jsonAnswer,
  LAST_CHUNK,
  SSE_HEAD,
  writeInTurns,
} from "./support/raw-engine.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Request bodies on their way in, untouched or with the few members that the gateway owns spliced in, and usage on its way out.

const CLIENTS = ["net", "undici"] as const;
const gateways = new Map<string, TestGateway>();
let engine: RawServer;
let answer: (call: RawCall) => void;

before(async () => {
  engine = await RawServer.listen({ onCall: (call) => answer(call) });
  for (const client of CLIENTS) {
    const common = {
      engine: "vllm",
      health: "passive",
      slots: 32,
      endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
    };
    gateways.set(
      client,
      await startTestGateway({
        file: { upstream_client: client },
        upstreams: [
          { ...common, id: "plain", models: ["m"] },
          { ...common, id: "inject", models: ["i"], usage: "inject" },
          { ...common, id: "ordered", models: ["p"], engine_priority: true },
          { ...common, id: "other", models: ["l"], engine_priority: true, engine: "llama.cpp" },
        ],
      }),
    );
  }
});
after(async () => {
  for (const gateway of gateways.values()) await gateway.stop();
  await engine[Symbol.asyncDispose]();
});
const gatewayOf = (client: string): TestGateway => gateways.get(client) as TestGateway;
const lastBody = (): Buffer => engine.calls.at(-1)?.body ?? Buffer.alloc(0);
const lastAudit = async (gateway: TestGateway) => (await gateway.audit("?limit=1")).records[0];

const USAGE = anEvent({
  id: "c1",
  choices: [],
  usage: { prompt_tokens: 11, completion_tokens: 4, total_tokens: 15, prompt_tokens_details: { cached_tokens: 8 } },
});
const TEXT = aToken("one") + aToken("two") + aFinish();

/** An engine that obeys `include_usage`, or one that sends usage always, or never. */
function usageEngine(kind: "obeys" | "always" | "never", ends: "\n" | "\r\n" = "\n"): void {
  answer = ({ socket, body }) => {
    const asked = JSON.parse(body.toString()) as { stream_options?: { include_usage?: unknown } | null };
    const sends = kind === "always" || (kind === "obeys" && asked.stream_options?.include_usage === true);
    const text = (TEXT + (sends ? USAGE : "") + DONE).replaceAll("\n", ends);
    const third = Math.ceil(text.length / 3);
    writeInTurns(socket, [
      SSE_HEAD,
      aChunk(text.slice(0, third)),
      aChunk(text.slice(third, 2 * third)),
      aChunk(text.slice(2 * third)),
      LAST_CHUNK,
    ]);
  };
}

const OPTIONS: readonly { readonly text: string; readonly asks: boolean; readonly injects: boolean }[] = [
  { text: "", asks: false, injects: true },
  { text: ',"stream_options":null', asks: false, injects: true },
  { text: ',"stream_options":{}', asks: false, injects: true },
  { text: ',"stream_options": { "continuous_usage_stats" : false } ', asks: false, injects: true },
  { text: ',"stream_options":{"include_usage":false}', asks: false, injects: false },
  { text: ',"stream_options":{"include_usage":true}', asks: true, injects: false },
  { text: ',"stream_options":{"include_usage":"True"}', asks: false, injects: false },
  { text: ',"stream_options":"yes"', asks: false, injects: false },
];

for (const client of CLIENTS) {
  test(
    `usage is asked for only where configured and the client said nothing, and only then its event is taken out, with ${client} [10.X4]`,
    { timeout: 240_000 },
    async () => {
      const gateway = gatewayOf(client);
      for (const model of ["m", "i"]) {
        for (const ends of ["\n", "\r\n"] as const) {
          for (const kind of ["obeys", "never"] as const) {
            for (const { text, asks, injects } of OPTIONS) {
              usageEngine(kind, ends);
              const body = `{"model":"${model}","stream":true${text},"messages":[{"role":"user","content":"読み🙂 \\u0041"}]}`;
              const got = await ask(gateway, { body });
              const added = model === "i" && injects;
              if (added) {
                const sent = JSON.parse(lastBody().toString()) as { stream_options: Record<string, unknown> };
                assert.equal(sent.stream_options["include_usage"], true);
                if (text.includes("continuous")) assert.equal(sent.stream_options["continuous_usage_stats"], false);
                assert.ok(lastBody().includes('"messages":[{"role":"user","content":"読み🙂 \\u0041"}]'));
              } else assert.equal(lastBody().toString(), body);
              const told = asks && kind === "obeys";
              assert.equal(
                got.text,
                (TEXT + (told ? USAGE : "") + DONE).replaceAll("\n", ends),
                `${model} ${kind}${text}`,
              );
              assert.ok(got.whole);
              const record = await lastAudit(gateway);
              const known = kind === "obeys" && (asks || added);
              assert.deepEqual(
                [record?.outcome, record?.promptTokens, record?.completionTokens, record?.cachedTokens],
                ["ok", ...(known ? [11, 4, 8] : [null, null, null])],
              );
            }
          }
        }
      }
    },
  );

  test(`an engine that sends usage unasked has it passed on and read, with ${client} [10.X4]`, async () => {
    usageEngine("always");
    const got = await ask(gatewayOf(client));
    assert.equal(got.text, TEXT + USAGE + DONE);
    assert.equal((await lastAudit(gatewayOf(client)))?.promptTokens, 11);
  });

  test(`usage is read from every format and from whole answers, with ${client} [10.X4]`, async () => {
    const gateway = gatewayOf(client);
    const named = (type: string, more: object): string =>
      `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;
    const rows: readonly (readonly [string, string, (number | null)[]])[] = [
      [
        "/v1/messages",
        named("message_start", {
          message: { usage: { input_tokens: 9, cache_read_input_tokens: 2, output_tokens: 1 } },
        }) +
          named("message_delta", { delta: { stop_reason: "end_turn" }, usage: { output_tokens: 6 } }) +
          named("message_stop", {}),
        [null, 6, 2],
      ],
      [
        "/v1/responses",
        named("response.created", { sequence_number: 0 }) +
          named("response.completed", {
            sequence_number: 1,
            response: { usage: { input_tokens: 9, output_tokens: 6, input_tokens_details: { cached_tokens: 2 } } },
          }),
        [9, 6, 2],
      ],
    ];
    for (const [path, text, [prompt, completion, cached]] of rows) {
      answer = ({ socket }) => void socket.write(SSE_HEAD + aChunk(text).toString() + LAST_CHUNK);
      const got = await ask(gateway, { path, body: aChat({ max_tokens: 9, input: "x" }) });
      assert.equal(got.text, text);
      const record = await lastAudit(gateway);
      assert.deepEqual([record?.outcome, record?.completionTokens, record?.cachedTokens], ["ok", completion, cached]);
      if (prompt !== null) assert.equal(record?.promptTokens, prompt);
    }
    for (const path of ["/v1/chat/completions", "/v1/completions"]) {
      answer = ({ socket }) => void socket.write(jsonAnswer(aCompletion()));
      await ask(gateway, { path, body: aChat({ stream: false }) });
      const record = await lastAudit(gateway);
      assert.deepEqual([record?.promptTokens, record?.completionTokens], [3, 2]);
      assert.ok((record?.firstByteMs ?? -1) >= 0);
    }
  });

  test(`the class is passed on as the engine's priority, lower first, where it is switched on and the engine knows one, with ${client} [10.X7]`, async () => {
    const gateway = gatewayOf(client);
    answer = ({ socket }) => void socket.write(jsonAnswer(aCompletion()));
    const seen: number[] = [];
    for (const requestClass of ["interactive", "system", "batch"]) {
      for (const body of [
        '{"model":"p","messages":[]}',
        '{"priority":-5,"model":"p", "messages":[]}',
        '{ "model" : "p" , "messages":[] , "priority" : 99 }',
      ]) {
        await ask(gateway, { body, headers: [`X-Yardmaster-Class: ${requestClass}`] });
        const sent = JSON.parse(lastBody().toString()) as { model: string; messages: unknown[]; priority: number };
        assert.deepEqual([sent.model, sent.messages], ["p", []]);
        assert.equal(lastBody().toString().split('"priority"').length, 2);
        seen.push(sent.priority);
      }
    }
    assert.deepEqual(
      seen,
      seen.toSorted((a, b) => a - b),
    );
    assert.equal(new Set(seen).size, 3);
    for (const model of ["m", "l"]) {
      const body = `{"model":"${model}","messages":[],"priority":7}`;
      await ask(gateway, { body });
      assert.equal(lastBody().toString(), body);
    }
  });

  test(
    `bodies from one byte to eight megabytes reach the engine as they were sent, in one piece or in trickles, chunked or not, with ${client} [10.X1 10.X2]`,
    { timeout: 240_000 },
    async () => {
      const gateway = gatewayOf(client);
      answer = ({ socket }) => void socket.write(jsonAnswer(aCompletion()));
      const unit = '読み🙂\\\\ \\u0041\\"';
      for (const size of [0, 1, 100, 16_384 - 60, 16_384, 65_536 - 61, 65_536, 65_537, 300_000, 1_048_577, 8_000_000]) {
        const text =
          size === 8_000_000 || size === 300_000
            ? unit.repeat(size / 20)
            : `${"x".repeat(size % 7)}${unit.repeat(Math.ceil(size / Buffer.byteLength(unit)))}`;
        const body = Buffer.from(
          `{"messages":[{"role":"user","content":"${text}"}],"x":{"model":"decoy"},"model":"m"}`,
        );
        const wanted = createHash("sha256").update(body).digest("hex");
        const got = await ask(gateway, { body });
        assert.equal(got.status, 200);
        assert.equal(createHash("sha256").update(lastBody()).digest("hex"), wanted, `${size} bytes at once`);

        // In pieces whose ends fall inside characters and escapes; small bodies byte by byte.
        const step = body.length < 2_000 ? 1 : Math.ceil(body.length / 997);
        for (const chunked of [false, true]) {
          using reader = await RawClient.connect(gateway.port);
          const head = requestBytes(gateway, { body }).subarray(0, -body.length).toString("latin1");
          await reader.write(chunked ? head.replace(/Content-Length: \d+/, "Transfer-Encoding: chunked") : head);
          for (let at = 0; at < body.length; at += step) {
            const piece = body.subarray(at, at + step);
            await reader.write(chunked ? aChunk(piece) : piece);
            if (at % 64 === 0) await new Promise((resolve) => setImmediate(resolve));
          }
          if (chunked) await reader.write(LAST_CHUNK);
          assert.equal((await heard(reader)).status, 200);
          assert.equal(createHash("sha256").update(lastBody()).digest("hex"), wanted, `${size} bytes in pieces`);
          assert.match(engine.calls.at(-1)?.head ?? "", new RegExp(`content-length: ${body.length}\r`, "i"));
        }
        engine.calls.length = 0;
      }
    },
  );

  test(
    `a spliced body keeps everything else byte for byte and has the right length, with ${client} [10.X4 10.X7]`,
    { timeout: 240_000 },
    async () => {
      const gateway = gatewayOf(client);
      usageEngine("obeys");
      for (const size of [10, 16_384, 65_536, 2_000_000]) {
        const content = "読🙂\\\\".repeat(Math.ceil(size / 9));
        const body = `{"model":"i","stream":true,"messages":[{"role":"user","content":"${content}"}],"big":12345678901234567890,"e":1.0e2}`;
        const got = await ask(gateway, { body });
        assert.ok(got.whole);
        const sent = lastBody().toString();
        assert.equal(Number(/content-length: (\d+)/i.exec(engine.calls.at(-1)?.head ?? "")?.[1]), lastBody().length);
        assert.equal(sent.replace(/"stream_options":\{"include_usage":true\},/, ""), body);
        engine.calls.length = 0;
      }
    },
  );

  test(
    `a form is routed by its model, also when the model comes after the file, and its bytes stay as they were, with ${client} [10.X2]`,
    { timeout: 240_000 },
    async () => {
      const gateway = gatewayOf(client);
      answer = ({ socket }) => void socket.write(jsonAnswer({ text: "well" }));
      const boundary = "----form7MA4YWxk";
      const file = Buffer.alloc(3_000_000);
      for (let at = 0; at < file.length; at += 1) file[at] = (at * 31 + (at >> 8)) % 256;
      const part = (name: string, value: Buffer | string, more = ""): Buffer =>
        Buffer.concat([
          Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"${more}\r\n\r\n`),
          Buffer.from(value as string),
          Buffer.from("\r\n"),
        ]);
      const filePart = part(
        "file",
        Buffer.concat([file, Buffer.from(`\r\n--${boundary.slice(0, -1)}X name="model"`)]),
        '; filename="読.wav"\r\nContent-Type: audio/wav',
      );
      for (const parts of [
        [filePart, part("model", "m")],
        [part("model", "m"), filePart],
        [part("stream", "false"), filePart, part("model", "m"), part("language", "日本")],
      ]) {
        const body = Buffer.concat([...parts, Buffer.from(`--${boundary}--\r\n`)]);
        const contentType = `multipart/form-data; boundary=${boundary}`;
        const got = await ask(gateway, { path: "/v1/audio/transcriptions", body, contentType });
        assert.equal(got.status, 200);
        assert.ok(lastBody().equals(body));
        assert.match(engine.calls.at(-1)?.head ?? "", new RegExp(`content-type: ${contentType}\r`, "i"));
        engine.calls.length = 0;
      }
    },
  );
}
