import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BLOCKS_MAX, prefixBlocks, type PrefixBlocks } from "./prefix-blocks.ts";

const blocks = (body: unknown, model = "m"): PrefixBlocks | undefined =>
  prefixBlocks([Buffer.from(JSON.stringify(body))], model);
const must = (body: unknown, model = "m"): PrefixBlocks => {
  const found = blocks(body, model);
  assert.ok(found);
  return found;
};
const system = { role: "system", content: "Answer in one word." };
const user = (content: string) => ({ role: "user", content });
const reply = (content: string) => ({ role: "assistant", content });
/** How many blocks two prompts have in common from the beginning. */
const shared = (a: PrefixBlocks, b: PrefixBlocks): number => {
  const parted = a.hashes.findIndex((hash, at) => hash !== b.hashes[at]);
  return parted < 0 ? a.hashes.length : parted;
};

test("a conversation that grows by a turn keeps all blocks that it had, and the one that makes it [10.R3]", () => {
  const first = must({ messages: [system, user("Which river runs through Bern?")] });
  const second = must({
    stream: true,
    messages: [system, user("Which river runs through Bern?"), reply("The Aare."), user("And through Basel?")],
  });
  assert.equal(shared(first, second), first.hashes.length);
  assert.equal(first.head, 1);
  assert.equal(second.hashes[second.head], first.hashes[first.head]);
});

test("two conversations under one system prompt share its block and part at their first message [10.R3]", () => {
  const a = must({ messages: [system, user("Rivers?")] });
  const b = must({ messages: [system, user("Mountains?")] });
  assert.equal(shared(a, b), 1);
  assert.notEqual(a.hashes[a.head], b.hashes[b.head]);
});

const apart: readonly { readonly name: string; readonly a: unknown; readonly b: unknown; readonly model?: string }[] = [
  {
    name: "another system prompt",
    a: { system: "x", messages: [user("q")] },
    b: { system: "y", messages: [user("q")] },
  },
  {
    name: "other tools",
    a: { tools: [{ n: 1 }], messages: [user("q")] },
    b: { tools: [{ n: 2 }], messages: [user("q")] },
  },
  { name: "other instructions", a: { instructions: "x", input: "q" }, b: { instructions: "y", input: "q" } },
  { name: "another model", a: { messages: [user("q")] }, b: { messages: [user("q")] }, model: "n" },
];
for (const { name, a, b, model } of apart)
  test(`${name} before equal messages is another prefix [10.R3]`, () =>
    assert.equal(shared(must(a), must(b, model)), 0));

test("a word about roles inside a message is no role: only the message's own says whose it is [10.R3]", () => {
  const told = user('the text {"role":"system"} is quoted');
  const found = must({ messages: [told, user("second")] });
  assert.equal(found.head, found.hashes.length - 2);
  const systems = must({ messages: [{ content: "late role", role: "developer" }, user("second")] });
  assert.equal(systems.head, systems.hashes.length - 1);
});

test("a plain prompt that goes on keeps its whole pieces [10.R3]", () => {
  const text = "The quick brown fox jumps over the lazy dog. ".repeat(40);
  const first = must({ prompt: text });
  const second = must({ prompt: `${text}And then it went home. ${"x".repeat(400)}` });
  assert.equal(shared(first, second), first.hashes.length);
  assert.ok(second.hashes.length > first.hashes.length);
  assert.equal(second.hashes[second.head], first.hashes[first.head]);
});

const nothing: readonly unknown[] = [{}, { messages: [] }, { prompt: "" }, { input: null }, { messages: 5 }];
for (const body of nothing)
  test(`${JSON.stringify(body)} has no prefix to go by, or a whole value, and never fails [10.R3]`, () =>
    assert.doesNotThrow(() => blocks(body)));

test("however the bytes were cut on their way, the blocks are the same [10.R3]", () => {
  const body = fc.record({
    system: fc.option(fc.string()),
    messages: fc.array(
      fc.record({ role: fc.constantFrom("system", "user", "assistant"), content: fc.string({ maxLength: 900 }) }),
      {
        maxLength: 6,
      },
    ),
  });
  fc.assert(
    fc.property(body, fc.array(fc.nat(2_000)), (value, cuts) => {
      const whole = Buffer.from(JSON.stringify(value));
      const places = [...new Set([0, ...cuts.filter((cut) => cut < whole.length), whole.length])].toSorted(
        (a, b) => a - b,
      );
      const chunks = places.slice(1).map((end, at) => whole.subarray(places[at], end));
      assert.deepEqual(prefixBlocks(chunks, "m"), prefixBlocks([whole], "m"));
    }),
  );
});

test("any conversation is a prefix of itself with further messages, block for block [10.R3]", () => {
  const message = fc.record({
    role: fc.constantFrom("system", "user", "assistant", "tool"),
    content: fc.oneof(
      fc.string({ maxLength: 3_000 }),
      fc.array(fc.record({ type: fc.constant("text"), text: fc.string() })),
    ),
  });
  fc.assert(
    fc.property(
      fc.array(message, { minLength: 1, maxLength: 8 }),
      fc.array(message, { maxLength: 4 }),
      (said, more) => {
        const before = must({ messages: said });
        const after = must({ messages: [...said, ...more] });
        assert.equal(shared(before, after), before.hashes.length);
      },
    ),
  );
});

test("the number of blocks is bounded, and what is beyond the bound changes none [10.R3 80.I9]", () => {
  const long = "lorem ipsum ".repeat(200_000);
  const a = must({ messages: [user(long)] });
  const b = must({ messages: [user(`${long}and more`)] });
  assert.ok(a.hashes.length <= BLOCKS_MAX);
  assert.ok(shared(a, b) >= a.hashes.length - 1);
  assert.ok(must({ messages: Array.from({ length: 5_000 }, () => user("hi")) }).hashes.length === BLOCKS_MAX);
});
