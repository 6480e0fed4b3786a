import assert from "node:assert/strict";
import { test } from "node:test";
import type { PlanStep } from "../../contract/job.ts";
import { mayBeAtWork } from "./may-be-at-work.ts";

const step = (what: PlanStep["what"], why = ""): PlanStep => ({ at: 0, what, why });

const rows: { name: string; plan: readonly PlanStep[]; expect: boolean }[] = [
  { name: "a new job is with nobody", plan: [step("queued"), step("claimed")], expect: false },
  {
    name: "what was postponed was with nobody",
    plan: [step("claimed"), step("postponed"), step("claimed")],
    expect: false,
  },
  { name: "a gateway that died left it at work", plan: [step("reclaimed"), step("claimed")], expect: true },
  { name: "a gateway that stopped left it at work", plan: [step("handed_back"), step("claimed")], expect: true },
  {
    name: "a later attempt found out",
    plan: [step("reclaimed"), step("retried", "UPSTREAM_RESET: lost")],
    expect: false,
  },
  {
    name: "an attempt whose time ran out left it at work",
    plan: [step("retried", "UPSTREAM_TIMEOUT: no answer")],
    expect: true,
  },
];
for (const { name, plan, expect } of rows) test(`${name} [20.F3]`, () => assert.equal(mayBeAtWork({ plan }), expect));
