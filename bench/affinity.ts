// B15: what prefix affinity brings on a replayed trace of conversations: `node bench/affinity.ts [--write]`. One gateway, four simulated
// engines with prefix caches of vLLM's kind; the same trace goes through each way of routing in turn, on fresh engines. Evidence is the
// engines' own counters and ledgers.
import { parseArgs } from "node:util";
import { systemClock } from "../src/kernel/clock.ts";
import { seededRandom } from "../src/kernel/random.ts";
import { startSimEngine } from "../src/sim-engine/sim-engine.ts";
import { startTestGateway } from "../test/e2e/support/test-gateway.ts";
import { machine, showTable } from "./page-table.ts";

const { values } = parseArgs({ options: { write: { type: "boolean", default: false } } });
const ENGINES = 4;
/** Conversations that are under way side by side: people think between their turns. */
const CONVERSATIONS = 300;
const TURNS_MIN = 4;
const TURNS_MAX = 10;
/** Calls at once. */
const LANES = 32;
/** System prompts, of which each conversation has one. */
const FORMS = 6;
/** Blocks of 16 tokens in one engine's cache: room for a little more than its fair share of all conversations. */
const CACHE_BLOCKS = 13_000;

interface Message {
  readonly role: string;
  readonly content: string;
}
const random = seededRandom(15);
const pick = (count: number): number => Math.floor(random.next() * count);
const words = (count: number): string => Array.from({ length: count }, () => `w${pick(100_000)}`).join(" ");
const forms = Array.from({ length: FORMS }, () => words(120));
const talks = Array.from({ length: CONVERSATIONS }, () => ({
  form: forms[pick(FORMS)]!,
  // The first question comes with the text that it is about.
  turns: Array.from({ length: TURNS_MIN + pick(TURNS_MAX - TURNS_MIN + 1) }, (_, turn) => ({
    asked: words(turn === 0 ? 300 + pick(1_200) : 30),
    answered: words(30),
  })),
}));

type Talk = (typeof talks)[number];

/** Whose turn it is, one after another: anybody's who has one left. */
const order: Talk[] = [];
const left = talks.map((talk) => ({ talk, turns: talk.turns.length }));
while (left.length > 0) {
  const at = pick(left.length);
  order.push(left[at]!.talk);
  left[at]!.turns -= 1;
  if (left[at]!.turns === 0) left.splice(at, 1);
}

interface Figures {
  /** Of all prompt tokens, those that an engine had warm. */
  readonly hitRate: number;
  /** Requests of the engine that had most, and prompt tokens that it computed, over the mean. */
  readonly requests: number;
  readonly computed: number;
}

async function replay(routing: Record<string, unknown>): Promise<Figures> {
  const engines = await Promise.all(
    Array.from({ length: ENGINES }, (_, seed) =>
      startSimEngine({
        models: ["m"],
        dialect: "vllm",
        slots: LANES,
        prefillTps: 40_000,
        decodeTps: 2_000,
        kvBlocks: CACHE_BLOCKS,
        seed,
        clock: systemClock,
      }),
    ),
  );
  const gateway = await startTestGateway({
    upstreams: [
      { id: "m", engine: "vllm", models: ["m"], slots: LANES, routing, endpoints: engines.map(({ url }) => ({ url })) },
    ],
  });
  const said = new Map<Talk, { readonly messages: Message[]; turn: number; last: Promise<void> }>();
  const takeTurn = async (talk: Talk): Promise<void> => {
    const state = said.get(talk)!;
    const { asked, answered } = talk.turns[state.turn]!;
    state.turn += 1;
    state.messages.push({ role: "user", content: asked });
    const response = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { ...gateway.auth, "content-type": "application/json" },
      body: JSON.stringify({ model: "m", max_tokens: 20, messages: state.messages }),
    });
    await response.text();
    if (response.status !== 200) throw new Error(`a call was answered ${response.status}`);
    state.messages.push({ role: "assistant", content: answered });
  };
  const queue = [...order];
  const lane = async (): Promise<void> => {
    for (let talk = queue.shift(); talk !== undefined; talk = queue.shift()) {
      const next = talk;
      const state = said.get(next) ?? {
        messages: [{ role: "system", content: next.form }],
        turn: 0,
        last: Promise.resolve(),
      };
      said.set(next, state);
      const before = state.last;
      state.last = (async () => {
        await before;
        await takeTurn(next);
      })();
      await state.last;
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  const pages = await Promise.all(engines.map(async ({ url }) => (await fetch(`${url}/metrics`)).text()));
  const counted = (name: string): number[] =>
    pages.map((page) => Number(new RegExp(`^vllm:${name}(?:_total)?\\{[^}]*\\} (\\S+)`, "m").exec(page)?.[1]));
  const [queries, hits] = [counted("prefix_cache_queries"), counted("prefix_cache_hits")];
  const opened = engines.map((engine) => engine.ledger().byModel["m"]?.opened ?? 0);
  await gateway.stop();
  await Promise.all(engines.map((engine) => engine.close()));
  return {
    hitRate: sum(hits) / sum(queries),
    requests: aboveMean(opened),
    computed: aboveMean(queries.map((tokens, at) => tokens - hits[at]!)),
  };
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);
const aboveMean = (loads: readonly number[]): number => Math.max(...loads) / (sum(loads) / loads.length);

const ways = [
  { name: "random", routing: { policy: "random_two" } },
  { name: "least loaded", routing: { policy: "least_loaded" } },
  { name: "prefix affinity", routing: { prefix_affinity: true } },
];
const found: (Figures & { readonly name: string })[] = [];
for (const { name, routing } of ways) found.push({ name, ...(await replay(routing)) });
const [blind] = found;
const warm = found.at(-1)!;
const gain = warm.hitRate / blind!.hitRate;
showTable(
  "affinity",
  [
    `Machine: ${machine()}; ${CONVERSATIONS} conversations of ${TURNS_MIN} to ${TURNS_MAX} turns side by side under ${FORMS} system prompts, ${order.length} calls, ${LANES} at once, ${ENGINES} simulated engines with caches of ${CACHE_BLOCKS * 16} tokens, a little more than a fourth of what all conversations take; each begins with a text of 300 to 1500 words.`,
    "",
    "| routing | prompt tokens found warm | hottest / mean, requests | hottest / mean, tokens computed |",
    "| --- | --- | --- | --- |",
    ...found.map(
      ({ name, hitRate, requests, computed }) =>
        `| ${name} | ${(hitRate * 100).toFixed(1)} % | ${requests.toFixed(2)} | ${computed.toFixed(2)} |`,
    ),
    "",
    "| bar | what | figure | first stage | goal | |",
    "| --- | --- | --- | --- | --- | --- |",
    `| B15 | hit rate / random's | ${gain.toFixed(2)} | ≥ 1.8 | ≥ 2.5 | ${gain >= 2.5 ? "goal" : gain >= 1.8 ? "first stage" : "**missed**"} |`,
    `| B15 | hottest / mean load | ${warm.requests.toFixed(2)} | ≤ 1.4 | ≤ 1.25 | ${warm.requests <= 1.25 ? "goal" : warm.requests <= 1.4 ? "first stage" : "**missed**"} |`,
  ],
  values.write,
);
