import assert from "node:assert/strict";
import { test } from "node:test";
import { prepareWorkflow, readAccepted } from "./workflow.ts";

const ID = "0c3a4a5e-0000-8000-8000-000000000001";
const prepared = (text: string): string => {
  const workflow = prepareWorkflow([Buffer.from(text.slice(0, 9)), Buffer.from(text.slice(9))], ID);
  assert.equal(workflow.kind, "ok", JSON.stringify(workflow));
  if (workflow.kind !== "ok") return "";
  assert.equal(workflow.bytes, Buffer.concat(workflow.chunks).length);
  return Buffer.concat(workflow.chunks).toString("utf8");
};

test("a workflow gets our ids in the place of its own, and each other byte stays, long seeds too [20.F3]", () => {
  const ours = `"prompt_id":"${ID}","client_id":"${ID}"`;
  assert.equal(
    prepared('{ "prompt": {"1":{"seed":18446744073709551615}} }'),
    `{${ours}, "prompt": {"1":{"seed":18446744073709551615}} }`,
  );
  assert.equal(
    prepared('{"prompt_id":"x","prompt":{"1":{}},"client_id":7,"front":true,"extra_data":{"a":1.0}}'),
    `{"prompt_id":"${ID}","prompt":{"1":{}},"client_id":"${ID}","front":false,"extra_data":{"a":1.0}}`,
  );
});

test("what is no workflow, or asks for a place in the line, is not sent [20.F3]", () => {
  for (const text of [
    "",
    "[]",
    "{",
    '{"prompt":"a cat"}',
    '{"prompt":{}}',
    '{"prompt":[1]}',
    "{}",
    '{"prompt":{"1":{}},"number":-5}',
    '{"prompt":{"1":{}},"prompt":{"2":{}}}',
  ])
    assert.equal(prepareWorkflow([Buffer.from(text)], ID).kind, "bad", text);
});

test("the id that ComfyUI gave is read where it is one", () => {
  assert.equal(readAccepted(`{"prompt_id":"${ID}","number":1,"node_errors":{}}`), ID);
  for (const body of ["", "null", "[]", "{}", '{"prompt_id":7}', '{"prompt_id":""}', '{"prompt_id":"../queue"}'])
    assert.equal(readAccepted(body), undefined, body);
});
