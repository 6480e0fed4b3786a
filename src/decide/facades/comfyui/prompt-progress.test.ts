import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { PromptProgress } from "./prompt-progress.ts";

const say = (type: string, data: Record<string, unknown>): string =>
  JSON.stringify({ type, data: { prompt_id: "p", ...data } });

test("nodes that are done and the steps of the one at work add up, and cached ones are done at once [20.F3]", () => {
  const progress = new PromptProgress("p", 4);
  const percent = (type: string, data: Record<string, unknown>) => progress.push(say(type, data)).percent;
  assert.equal(percent("execution_cached", { nodes: ["1"] }), 25);
  assert.equal(percent("executing", { node: "2" }), undefined);
  assert.equal(percent("progress", { value: 10, max: 20 }), 37);
  assert.equal(percent("progress", { value: 5, max: 20 }), undefined, "it never goes back");
  assert.equal(percent("executing", { node: "3" }), 50);
  assert.equal(percent("executed", { node: "3" }), 75);
  assert.equal(percent("executed", { node: "4" }), 99, "the result is what is whole");
});

test("the end is told by any of its messages, and never by one about another prompt [20.F3]", () => {
  const ended = (text: string): boolean => new PromptProgress("p", 1).push(text).ended;
  for (const type of ["execution_success", "execution_error", "execution_interrupted"]) assert.ok(ended(say(type, {})));
  assert.ok(ended(say("executing", { node: null })));
  assert.ok(!ended(say("executing", { node: "1" })));
  assert.ok(!ended(say("execution_success", { prompt_id: "q" })));
  assert.ok(!ended(say("status", { prompt_id: undefined })));
});

test("no message makes it throw, and it only grows, to 99 at most [20.F3]", () => {
  const node = fc.constantFrom<unknown>("1", "2", "3", 7, null, undefined);
  const number = fc.constantFrom<unknown>(0, 1, 20, -1, Number.MAX_VALUE, "x", null);
  const message = fc
    .tuple(fc.constantFrom("progress", "executing", "executed", "execution_cached"), node, number, number)
    .map(([type, at, value, max]) => say(type, { node: at, nodes: [at], value, max }));
  fc.assert(
    fc.property(fc.array(fc.oneof(message, fc.string()), { maxLength: 50 }), fc.nat(5), (messages, nodes) => {
      const progress = new PromptProgress("p", nodes);
      let last = 0;
      for (const text of messages) {
        const { percent } = progress.push(text);
        if (percent === undefined) continue;
        assert.ok(percent > last && percent <= 99);
        last = percent;
      }
    }),
  );
});
