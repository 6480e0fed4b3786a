import assert from "node:assert/strict";
import { test } from "node:test";
import { RawServer } from "../../src/testing/raw-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { ask } from "./support/raw-answers.ts";
import { jsonAnswer } from "./support/raw-engine.ts";
import { startTestGateway } from "./support/test-gateway.ts";

const LISTED = "org/whisper-large";
const BOUNDARY = "----form7MA4YWxk";
const aForm = (model: string): string => {
  const part = (name: string, value: string): string =>
    `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
  const file = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n`;
  const content = `whisper-1\r\n--${BOUNDARY.slice(0, -1)}X\r\n${"é".repeat(40_000)}`;
  return `preamble\r\n${part("language", "de")}${file}${content}\r\n${part("model", model)}--${BOUNDARY}--\r\n`;
};

test("an engine that refuses what it does not list is asked by the name that it lists, in JSON and in a form, and nothing else of the body changes [10.R1]", async () => {
  await using engine = await RawServer.listen({
    onCall: ({ head, socket }) => {
      if (head.startsWith("GET /v1/models")) socket.write(jsonAnswer({ object: "list", data: [{ id: LISTED }] }));
      else socket.write(jsonAnswer({ text: "well" }));
    },
  });
  const gateway = await startTestGateway({
    upstreams: [
      {
        id: "u",
        engine: "vllm",
        models: ["whisper-1", LISTED],
        slots: 8,
        endpoints: [{ url: `http://127.0.0.1:${engine.port}` }],
      },
    ],
  });
  try {
    const contentType = `multipart/form-data; boundary=${BOUNDARY}`;
    const told = async (path: string, body: string, type?: string): Promise<string> => {
      const got = await ask(gateway, {
        path,
        body: Buffer.from(body),
        ...(type !== undefined && { contentType: type }),
      });
      assert.equal(got.status, 200);
      const call = engine.calls.findLast(({ head }) => head.startsWith("POST "));
      assert.match(call?.head ?? "", new RegExp(`content-length: ${call?.body.length}\r`, "i"));
      return call?.body.toString() ?? "";
    };
    const aChat = (model: string): string => `{"user":"é","model" : "${model}","x":{"model":"whisper-1"}}`;
    await eventually(
      "the engine's list is known",
      () => told("/v1/chat/completions", aChat("whisper-1")),
      (body) => body === aChat(LISTED),
      20_000,
    );
    assert.equal(await told("/v1/chat/completions", aChat(LISTED)), aChat(LISTED));
    const path = "/v1/audio/transcriptions";
    assert.equal(await told(path, aForm("whisper-1"), contentType), aForm(LISTED));
    assert.equal(await told(path, aForm(LISTED), contentType), aForm(LISTED));
  } finally {
    await gateway.stop();
  }
});
