import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { seededRandom } from "../../kernel/random.ts";
import { anEndpointView } from "../../testing/an-endpoint-view.ts";
import { AffinityTable, type AffinityWish } from "./affinity-table.ts";
import { chooseEndpoint, type EndpointChoice, type EndpointView } from "./choose-endpoint.ts";
import { rankByHash } from "./prefer-warm.ts";
import { hashText } from "./prefix-blocks.ts";

const anEndpoint = (id: string, change: Partial<EndpointView> = {}): EndpointView =>
  anEndpointView(id, { slots: 16, ...change });
const FOUR = ["a", "b", "c", "d"].map((id) => anEndpoint(id));
const conversation = (name: string, turns = 1): AffinityWish => ({
  session: null,
  prefix: {
    hashes: Array.from({ length: turns }, (_, turn) => hashText(`${name}/${turn}`)),
    ends: Array.from({ length: turns }, (_, turn) => (turn + 1) * 100),
    head: 0,
    bytes: turns * 100,
  },
});
const session = (name: string): AffinityWish => ({ session: hashText(name), prefix: null });

class Router {
  readonly table = new AffinityTable();
  bound = 1.25;

  choose(wish: AffinityWish, endpoints: readonly EndpointView[], tried: readonly string[] = []): EndpointChoice {
    const choice = chooseEndpoint({
      endpoints,
      policy: "least_loaded",
      exclude: new Set(tried),
      cursor: 0,
      random: seededRandom(1),
      affinity: { wish, matches: this.table.matches(wish), loadBound: this.bound },
    });
    if (choice.kind === "chosen") this.table.note(wish, choice.id);
    return choice;
  }
}
const where = (choice: EndpointChoice): string =>
  choice.kind === "none" ? "none" : `${choice.id} ${choice.affinity?.outcome}`;
const idOf = (choice: EndpointChoice): string => (choice.kind === "none" ? "none" : choice.id);

test("the next turn of a conversation goes where its first went, and so does a session [10.R3]", () => {
  for (const wish of [conversation("x"), session("x")]) {
    const router = new Router();
    const first = router.choose(wish, FOUR);
    assert.match(where(first), / placed$/);
    for (let turn = 0; turn < 3; turn += 1) assert.equal(where(router.choose(wish, FOUR)), `${idOf(first)} warm`);
  }
  const router = new Router();
  const first = idOf(router.choose(conversation("y", 1), FOUR));
  for (const turns of [2, 3, 4]) assert.equal(where(router.choose(conversation("y", turns), FOUR)), `${first} warm`);
});

test("two gateways that know the same endpoints send one conversation to the same one, without a word between them [10.R3]", () => {
  for (let name = 0; name < 50; name += 1) {
    const wish = conversation(String(name));
    assert.equal(idOf(new Router().choose(wish, FOUR)), idOf(new Router().choose(wish, [...FOUR].reverse())));
  }
});

test("the warm endpoint is passed over when it has more than its share, and the next turn stays where the spilled one went [10.R3]", () => {
  const router = new Router();
  const wish = conversation("x");
  const home = idOf(router.choose(wish, FOUR));
  const busy = FOUR.map((view) => (view.id === home ? { ...view, inFlight: 10 } : { ...view, inFlight: 6 }));
  const spilled = router.choose(wish, busy);
  assert.match(where(spilled), / spilled$/);
  assert.notEqual(idOf(spilled), home);
  assert.match(where(router.choose(wish, busy)), new RegExp(`^${idOf(spilled)} `));
});

const away: readonly [string, Partial<EndpointView>][] = [
  ["drains", { draining: true }],
  ["has a faulted card", { guard: "fail" }],
  ["has an open breaker", { breaker: "open" }],
  ["is stalled", { stalled: true }],
  ["is unhealthy", { health: "unhealthy" }],
  ["is suspect", { suspect: true }],
  ["does not serve the model", { serves: false }],
  ["has no slot", { inFlight: 16 }],
];
for (const [what, part] of away)
  test(`warmth never brings a request to an endpoint that ${what} [10.R3 10.R1]`, () => {
    const router = new Router();
    router.bound = 4;
    const home = idOf(router.choose(session("x"), FOUR));
    const now = FOUR.map((view) => (view.id === home ? { ...view, ...part } : view));
    assert.notEqual(idOf(router.choose(session("x"), now)), home);
    if ("inFlight" in part || "suspect" in part) return;
    assert.deepEqual(router.choose(session("x"), [anEndpoint("only", part)]).kind, "none");
  });

test("a retry goes elsewhere, however warm the endpoint that failed [10.R3 10.R4]", () => {
  const router = new Router();
  const home = idOf(router.choose(session("x"), FOUR));
  assert.notEqual(idOf(router.choose(session("x"), FOUR, [home])), home);
});

test("a form that many prompts share is no reason to go where it is warm: they spread [10.R3]", () => {
  const router = new Router();
  const asked = (name: number): AffinityWish => ({
    session: null,
    prefix: { hashes: [hashText("form"), hashText(`form/${name}`)], ends: [40, 100], head: 1, bytes: 100 },
  });
  const ids = new Set(Array.from({ length: 40 }, (_, name) => idOf(router.choose(asked(name), FOUR))));
  assert.equal(ids.size, 4);
});

test("a prefix that is most of the prompt is gone after, though the conversation is new [10.R3]", () => {
  const router = new Router();
  const asked = (name: number): AffinityWish => ({
    session: null,
    prefix: { hashes: [hashText("book"), hashText(`book/${name}`)], ends: [90, 100], head: 1, bytes: 100 },
  });
  const first = idOf(router.choose(asked(0), FOUR));
  for (let name = 1; name < 10; name += 1) assert.equal(where(router.choose(asked(name), FOUR)), `${first} warm`);
});

test("an endpoint that leaves moves its own conversations and no other's, and one that joins takes no more than its share [10.R3 10.R6]", () => {
  const keys = Array.from({ length: 2_000 }, (_, name) => hashText(String(name)));
  const home = (endpoints: readonly EndpointView[]): string[] => keys.map((key) => rankByHash(key, endpoints)[0]!.id);
  const before = home(FOUR);
  const after = home(FOUR.filter(({ id }) => id !== "c"));
  before.forEach((id, at) => id !== "c" && assert.equal(after[at], id));
  const joined = home([...FOUR, anEndpoint("e")]);
  const moved = joined.filter((id, at) => id !== before[at]);
  assert.ok(moved.every((id) => id === "e"));
  assert.ok(Math.abs(moved.length / keys.length - 1 / 5) < 0.05, `${moved.length}`);
});

test("a larger endpoint gets conversations by its slots [10.R3]", () => {
  const views = [anEndpoint("small", { slots: 8 }), anEndpoint("large", { slots: 24 })];
  const keys = Array.from({ length: 4_000 }, (_, name) => hashText(`k${name}`));
  const large = keys.filter((key) => rankByHash(key, views)[0]!.id === "large").length;
  assert.ok(Math.abs(large / keys.length - 0.75) < 0.04, `${large}`);
});

test("warmth never puts more on an endpoint than its bounded share of what runs, in any sequence [10.R3]", () => {
  const wishes = fc.constantFrom(...Array.from({ length: 6 }, (_, name) => conversation(String(name))), session("s"));
  const step = fc.oneof(fc.record({ start: wishes }), fc.record({ end: fc.nat(3) }));
  const slots = fc.array(fc.integer({ min: 1, max: 24 }), { minLength: 2, maxLength: 6 });
  fc.assert(
    fc.property(slots, fc.constantFrom(1.05, 1.25, 2), fc.array(step, { maxLength: 120 }), (sizes, bound, steps) => {
      const router = new Router();
      router.bound = bound;
      const running = sizes.map(() => 0);
      const total = sizes.reduce((sum, size) => sum + size, 0);
      for (const each of steps) {
        if ("end" in each) {
          const at = each.end % sizes.length;
          running[at] = Math.max(0, running[at]! - 1);
          continue;
        }
        const views = sizes.map((size, at) => anEndpoint(`e${at}`, { slots: size, inFlight: running[at]! }));
        const choice = router.choose(each.start, views);
        if (choice.kind === "none") {
          assert.ok(running.every((count, at) => count >= sizes[at]!));
          continue;
        }
        const at = Number(choice.id.slice(1));
        running[at]! += 1;
        const load = running.reduce((sum, count) => sum + count, 0);
        if (choice.affinity?.outcome !== "unheard")
          assert.ok(
            running[at]! <= Math.ceil((bound * load * sizes[at]!) / total),
            `${running.join()} of ${sizes.join()}`,
          );
      }
    }),
  );
});

test("what is remembered is bounded, and what is used stays [10.R3 80.I9]", () => {
  const table = new AffinityTable(4);
  for (let name = 0; name < 10; name += 1) {
    table.note(session("kept"), "a");
    table.note(session(String(name)), "b");
  }
  assert.equal(table.size, 4);
  assert.deepEqual(table.matches(session("kept")), [{ ids: ["a"], part: 1 }]);
  assert.deepEqual(table.matches(session("0")), []);
});
