import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { CommandEnvelope, Lead } from "../../contract/agent-link.ts";
import { type CommandVerdict, judgeCommand, judgeLead, type EpochMemory } from "./command-gate.ts";

const LEAD: Lead = { clusterId: "c", epoch: 5, holder: "h1" };
const MEMORY: EpochMemory = { ...LEAD, seq: 3, commit: 7, epochProof: "e5", commitProof: "c7" };
const command = (over: Partial<CommandEnvelope> = {}): Omit<CommandEnvelope, "verb"> => ({
  ...LEAD,
  seq: 4,
  commit: 8,
  commitProof: "c8",
  commandId: "k",
  validForMs: 10_000,
  ...over,
});
const FRESH = { receivedAtMs: 1_000, provenAliveMs: 1_000, nowMs: 1_000 };

const leads: readonly { readonly name: string; readonly lead: Partial<Lead>; readonly expect: string }[] = [
  { name: "the same lead again", lead: {}, expect: "follow" },
  { name: "a higher epoch", lead: { epoch: 6, holder: "h2" }, expect: "follow" },
  { name: "an older epoch", lead: { epoch: 4 }, expect: "STALE_EPOCH" },
  { name: "a second holder of the same number", lead: { holder: "h2" }, expect: "EPOCH_CONFLICT" },
  { name: "another cluster, however high", lead: { clusterId: "d", epoch: 99 }, expect: "CLUSTER_MISMATCH" },
];
for (const { name, lead, expect } of leads) {
  test(`a control plane that says to lead: ${name} is ${expect} [80.C2]`, () => {
    const verdict = judgeLead(MEMORY, { ...LEAD, proof: "", ...lead });
    assert.equal(verdict.kind === "refused" ? verdict.code : verdict.kind, expect);
  });
}

const commands: readonly {
  readonly name: string;
  readonly command?: Partial<CommandEnvelope>;
  readonly lead?: Lead | null;
  readonly times?: Partial<typeof FRESH>;
  readonly seen?: boolean;
  readonly memory?: EpochMemory | null;
  readonly expect: string;
}[] = [
  { name: "in order, in time, of the lead", expect: "carryOut" },
  { name: "of an older epoch", command: { epoch: 4 }, expect: "STALE_EPOCH" },
  { name: "of another holder", command: { holder: "h2" }, expect: "EPOCH_CONFLICT" },
  { name: "of a control plane that never said to lead", lead: null, expect: "NOT_LEADING" },
  { name: "of a higher epoch than the sender said", command: { epoch: 6 }, expect: "NOT_LEADING" },
  { name: "before any lead was kept", memory: null, expect: "NOT_LEADING" },
  { name: "with a seq that was used", command: { seq: 3 }, expect: "REPLAYED" },
  { name: "with a used seq and a known id", command: { seq: 3 }, seen: true, expect: "repeated" },
  { name: "later than its time", times: { nowMs: 11_001 }, expect: "EXPIRED" },
  { name: "just in time", times: { nowMs: 11_000 }, expect: "carryOut" },
  { name: "fresh from a link that was not proven alive", times: { provenAliveMs: -9_001 }, expect: "EXPIRED" },
];
for (const { name, command: over, lead, times, seen, memory, expect } of commands) {
  test(`a command ${name}: ${expect} [80.C1 80.C2 80.D27]`, () => {
    const verdict = judgeCommand(
      memory === undefined ? MEMORY : memory,
      lead === undefined ? LEAD : lead,
      command(over),
      { ...FRESH, ...times },
      seen === true,
    );
    assert.equal(verdict.kind === "refused" ? verdict.code : verdict.kind, expect);
  });
}

test("whatever leads and commands come, epochs never fall, a number has one holder, and no seq is used twice [80.C2]", () => {
  const lead = fc.record({
    clusterId: fc.constant("c"),
    epoch: fc.integer({ min: 1, max: 4 }),
    holder: fc.constantFrom("x", "y"),
  });
  const step = fc.oneof(
    fc.record({ kind: fc.constant("lead" as const), lead }),
    fc.record({ kind: fc.constant("command" as const), lead, seq: fc.nat(5) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      let memory: EpochMemory | null = null;
      let said: Lead | null = null;
      const holders = new Map<number, string>();
      const done = new Set<string>();
      let highest = 0;
      for (const next of steps) {
        if (next.kind === "lead") {
          const verdict = judgeLead(memory, { ...next.lead, proof: "" });
          if (verdict.kind !== "follow") continue;
          memory = verdict.memory;
          said = next.lead;
          assert.ok(memory.epoch >= highest);
          highest = memory.epoch;
          assert.equal(holders.get(memory.epoch) ?? memory.holder, memory.holder);
          holders.set(memory.epoch, memory.holder);
        } else {
          const verdict = judgeCommand(memory, said, command({ ...next.lead, seq: next.seq }), FRESH, false);
          if (verdict.kind !== "carryOut") continue;
          assert.equal(next.lead.epoch, highest);
          const key = `${next.lead.epoch}/${next.seq}`;
          assert.ok(!done.has(key));
          done.add(key);
          memory = verdict.memory;
        }
      }
    }),
  );
});

test("the highest commit that stands behind a command is kept over terms and never falls [80.P7]", () => {
  const { memory } = carriedOut(judgeCommand(MEMORY, LEAD, command(), FRESH, false));
  assert.equal(memory.commit, 8);
  const later = carriedOut(judgeCommand(MEMORY, LEAD, command({ commit: 2, commitProof: "c2" }), FRESH, false));
  assert.deepEqual([later.memory.commit, later.memory.commitProof], [7, "c7"]);
  const next = judgeLead(memory, { ...LEAD, epoch: 6, holder: "h2", proof: "e6" });
  assert.deepEqual(next, {
    kind: "follow",
    memory: { clusterId: "c", epoch: 6, holder: "h2", seq: -1, commit: 8, epochProof: "e6", commitProof: "c8" },
  });
});

function carriedOut(verdict: CommandVerdict): Extract<CommandVerdict, { kind: "carryOut" }> {
  return verdict.kind === "carryOut" ? verdict : assert.fail(verdict.kind);
}
