import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { askLease, mayWrite, type LeaseRow } from "../../testing/lease-row.ts";
import { mayAct, newClaim, stepClaim } from "./lease-claim.ts";
import type { ClaimEvent, LeaderTerm, LeaseClaim } from "./lease-claim.ts";

// Every order of events of a small world, breadth first: two control planes, one store, two agents. A control plane that is
// frozen, slow or cut off is one whose next event simply comes late, so those are all in it. Times are whole steps.

const SETTINGS = { leaseMs: 2, renewMs: 1, blindMsMax: 2 };
const NAMES = ["a", "b"] as const;
const STATES_MAX = 60_000;
/** With times written relative to now, older ones than this can't matter any more. */
const OLD = 4;

interface Command {
  readonly term: LeaderTerm;
  readonly to: number;
}

interface World {
  readonly now: number;
  readonly row: LeaseRow | null;
  /** What an asynchronous standby of the store has: where a failover goes back to. */
  readonly replica: LeaseRow | null;
  readonly failoversLeft: number;
  readonly claims: readonly [LeaseClaim, LeaseClaim];
  /** For each control plane: the request that is under way, the answer that is under way. */
  readonly asked: readonly (number | null)[];
  readonly answers: readonly (ClaimEvent | null)[];
  /** Committed and not yet delivered. */
  readonly commands: readonly Command[];
  readonly agents: readonly (LeaderTerm | null)[];
  /** The highest epoch under which the store took a write, since its last failover. */
  readonly written: number;
  readonly holderOf: Readonly<Record<number, string>>;
}

const START: World = {
  now: 0,
  row: null,
  replica: null,
  failoversLeft: 1,
  claims: [newClaim("a", asMono(0)), newClaim("b", asMono(0))],
  asked: [null, null],
  answers: [null, null],
  commands: [],
  agents: [null, null],
  written: 0,
  holderOf: {},
};

const at = <T>(list: readonly T[], index: number, value: T): T[] => list.map((old, i) => (i === index ? value : old));

function tell(world: World, i: number, event: ClaimEvent): World {
  const claim = world.claims[i];
  if (claim === undefined) return world;
  const step = stepClaim(claim, event, asMono(world.now), SETTINGS);
  let next: World = { ...world, claims: at(world.claims, i, step.claim) as [LeaseClaim, LeaseClaim] };
  for (const effect of step.effects) {
    if (effect.kind === "ask") next = { ...next, asked: at(next.asked, i, effect.floor) };
    if (effect.kind === "lead" || effect.kind === "standDown")
      next = {
        ...next,
        commands: next.commands.filter(({ term }) => term.holder !== NAMES[i] || term.epoch === effect.epoch),
      };
  }
  return next;
}

/** Every world that one event can lead to, each with the event's name. */
function successors(world: World): [string, World][] {
  const next: [string, World][] = [["a step of time", { ...world, now: world.now + 1 }]];
  if (world.failoversLeft > 0 && JSON.stringify(world.row) !== JSON.stringify(world.replica))
    next.push(["failover loses the last commit", { ...world, row: world.replica, failoversLeft: 0, written: 0 }]);
  for (const [i, name] of NAMES.entries()) {
    const claim = world.claims[i];
    const floor = world.asked[i];
    const answer = world.answers[i];
    if (claim === undefined) continue;
    if (claim.askedAt === null && world.now >= claim.nextAskAt)
      next.push([`${name} ticks`, tell(world, i, { kind: "tick" })]);
    if (floor !== null && floor !== undefined) {
      const verdict = askLease(world.row, { holder: name, leaseMs: SETTINGS.leaseMs, floor, alone: false }, world.now);
      const said: ClaimEvent = verdict.held
        ? { kind: "held", epoch: verdict.row.epoch, priorEpoch: verdict.row.priorEpoch }
        : { kind: "refused", by: verdict.row };
      const asked = at(world.asked, i, null);
      next.push([
        `the store answers ${name}`,
        { ...world, replica: world.row, row: verdict.row, asked, answers: at(world.answers, i, said) },
      ]);
      next.push([
        `the request of ${name} is lost`,
        { ...world, asked, answers: at(world.answers, i, { kind: "unreachable" }) },
      ]);
    }
    if (answer !== null && answer !== undefined)
      next.push([`${name} hears`, tell({ ...world, answers: at(world.answers, i, null) }, i, answer)]);
    next.push(...acts(world, i, name, claim));
  }
  for (const [k, command] of world.commands.entries()) next.push(["a command arrives", deliver(world, k, command)]);
  return next;
}

/** A write under the own epoch, and the command that follows it. A stale control plane tries as well. */
function acts(world: World, i: number, name: string, claim: LeaseClaim): [string, World][] {
  const { epoch } = claim;
  const next: [string, World][] = [];
  if (epoch !== null && mayAct(claim, asMono(world.now), SETTINGS) && world.commands.length < 2) {
    if (mayWrite(world.row, name, epoch)) {
      assert.ok(epoch >= world.written, `${name} wrote under ${epoch} after a write under ${world.written}`);
      for (const to of [0, 1])
        next.push([
          `${name} writes and commands ${to}`,
          { ...world, written: epoch, commands: [...world.commands, { term: { holder: name, epoch }, to }] },
        ]);
    } else next.push([`the store refuses ${name}`, tell(world, i, { kind: "fenced", epoch })]);
  }
  for (const [k, seen] of world.agents.entries())
    if (seen !== null && seen.holder !== name && seen.epoch > claim.floor)
      next.push([`agent ${k} reports to ${name}`, tell(world, i, { kind: "reported", term: seen })]);
  return next;
}

function deliver(world: World, k: number, { term, to }: Command): World {
  const commands = world.commands.filter((_, index) => index !== k);
  const seen = world.agents[to] ?? null;
  const obeys = seen === null || term.epoch > seen.epoch || (term.epoch === seen.epoch && term.holder === seen.holder);
  if (!obeys) return { ...world, commands };
  const holder = world.holderOf[term.epoch] ?? term.holder;
  if (world.failoversLeft === 1)
    assert.equal(holder, term.holder, `agents obeyed two holders of epoch ${term.epoch}, and no store lost anything`);
  return {
    ...world,
    commands,
    agents: at(world.agents, to, term),
    holderOf: { ...world.holderOf, [term.epoch]: holder },
  };
}

/** Equal for worlds that behave equally from here on. */
function nameOf(world: World): string {
  const relative = (time: number | null): number | null => (time === null ? null : Math.max(-OLD, time - world.now));
  return JSON.stringify([
    world.row && [world.row.holder, world.row.epoch, relative(world.row.expiresAt)],
    world.failoversLeft > 0 &&
      world.replica && [world.replica.holder, world.replica.epoch, relative(world.replica.expiresAt)],
    world.failoversLeft,
    world.claims.map((c) => [
      c.role,
      c.epoch,
      relative(c.confirmedAt),
      relative(c.askedAt),
      relative(c.nextAskAt),
      c.floor,
    ]),
    world.asked,
    world.answers,
    world.commands,
    world.agents,
    world.written,
  ]);
}

test("in every order of events of two control planes, one store and two agents, epochs obeyed and written never go back [40.L2 80.P3]", () => {
  const seen = new Set([nameOf(START)]);
  let frontier: { readonly world: World; readonly trail: readonly string[] }[] = [{ world: START, trail: [] }];
  let depth = 0;
  let led = 0;
  let failedOver = 0;
  while (frontier.length > 0 && seen.size < STATES_MAX) {
    const following: typeof frontier = [];
    for (const { world, trail } of frontier) {
      let steps;
      try {
        steps = successors(world);
      } catch (error) {
        throw new Error([...trail, String(error)].join("\n"), { cause: error });
      }
      for (const [event, next] of steps) {
        const name = nameOf(next);
        if (seen.has(name)) continue;
        seen.add(name);
        check(world, next, [...trail, event]);
        if (next.claims.every(({ role }) => role === "leading")) led += 1;
        if (next.failoversLeft === 0) failedOver += 1;
        following.push({ world: next, trail: [...trail, event] });
      }
    }
    frontier = following;
    depth += 1;
  }
  assert.ok(depth >= 8, `only ${depth} events deep`);
  assert.ok(led > 0, "worlds in which both believe to lead were among them");
  assert.ok(failedOver > 0, "worlds with a lost commit were among them");
});

function check(before: World, after: World, trail: readonly string[]): void {
  for (const [k, seen] of after.agents.entries()) {
    const old = before.agents[k] ?? null;
    if (old === null || seen === null) continue;
    assert.ok(seen.epoch >= old.epoch, `agent ${k} went back to ${seen.epoch}\n${trail.join("\n")}`);
    if (seen.epoch === old.epoch) assert.equal(seen.holder, old.holder, trail.join("\n"));
  }
}
