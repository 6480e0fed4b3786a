import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { bendEvent, splitInsideCrLf } from "./event-stream.ts";
import { parseAction, parseRules, Script, SIM_ACTIONS } from "./script.ts";

const chat = { path: "/v1/chat/completions", inference: true, model: "a", tag: "batch" };

test("a misspelt action, a wrong type and an unknown choice are refused", () => {
  for (const wrong of [{ delayHaedMs: 1 }, { delayHeadMs: "1" }, { cut: "sever" }, { headers: null }, 3])
    assert.equal(parseAction(wrong).kind, "wrong");
  assert.equal(parseRules({ match: { colour: "red" }, do: {} }).kind, "wrong");
  assert.equal(parseRules([{ do: { status: 503 } }, { match: { nth: 2 }, do: { cut: "rst" } }]).kind, "ok");
});

test("a rule without a path applies to inference alone, and health keys to the health page", () => {
  const script = new Script();
  script.add({ do: { status: 500 } });
  script.add({ do: { healthStatus: 503 } });
  assert.equal(script.take({ ...chat, path: "/v1/models", inference: false }).status, undefined);
  assert.equal(script.take({ path: "/health", inference: false, model: "", tag: "" }).healthStatus, 503);
  assert.equal(script.take(chat).status, 500);
});

test("nth and times count the requests that fit otherwise", () => {
  const script = new Script();
  script.add({ match: { model: "a", nth: 2 }, do: { status: 502 } });
  script.add({ match: { tag: "batch", times: 1 }, do: { delayHeadMs: 5 } });
  script.add({ match: { path: "/v1/chat/*" }, do: { noDone: true } });
  const seen = [{ ...chat, model: "b" }, chat, chat, chat].map((subject) => script.take(subject));
  assert.deepEqual(seen, [
    { delayHeadMs: 5, noDone: true },
    { noDone: true },
    { status: 502, noDone: true },
    { noDone: true },
  ]);
  script.clear();
  assert.deepEqual(script.take(chat), {});
});

test("events keep their meaning under other line ends, comments and missing blanks", () => {
  const event = 'event: x\ndata: {"a":1}\n\n';
  assert.equal(bendEvent({ lineEnding: "\r\n" }, event, 1), 'event: x\r\ndata: {"a":1}\r\n\r\n');
  assert.equal(bendEvent({ lineEnding: "\r" }, event, 1), 'event: x\rdata: {"a":1}\r\r');
  assert.equal(bendEvent({ noSpaceAfterData: true }, event, 1), 'event:x\ndata:{"a":1}\n\n');
  assert.equal(bendEvent({ comments: 1 }, event, 1), `: comment 0\n\n${event}`);
  assert.deepEqual(splitInsideCrLf("a\r\nb\r\n"), ["a\r", "\nb\r", "\n"]);
});

test("mixed line ends change between events and never inside one", () => {
  const ends = [1, 2, 3].map((index) => bendEvent({ lineEnding: "mixed" }, "data: 1\n\n", index));
  assert.deepEqual(ends, ["data: 1\r\n\r\n", "data: 1\r\r", "data: 1\n\n"]);
});

test("dropped parts of a stream are dropped exactly", () => {
  const done = "data: [DONE]\n\n";
  assert.equal(bendEvent({ noDone: true }, done, 1), undefined);
  assert.equal(bendEvent({ onlyDone: true }, "data: {}\n\n", 1), undefined);
  assert.equal(bendEvent({ onlyDone: true }, done, 1), done);
  assert.equal(bendEvent({ emptyStream: true }, done, 1), undefined);
  assert.equal(
    bendEvent({ noFinishReason: true }, 'data: {"finish_reason":"stop"}\n\n', 1),
    'data: {"finish_reason":null}\n\n',
  );
  assert.equal(bendEvent({ noFinishReason: true }, "event: response.completed\ndata: {}\n\n", 1), undefined);
});

test("every action that the script knows is in the reference page", async () => {
  const page = await readFile(new URL("../../docs/reference/sim-engine.md", import.meta.url), "utf8");
  for (const name of SIM_ACTIONS) assert.match(page, new RegExp(`\`${name}[:\`]`), name);
});
