import { systemClock } from "../../src/kernel/clock.ts";
import type { Random } from "../../src/kernel/random.ts";
import { Coverage } from "./coverage.ts";
import { mutate } from "./mutate.ts";
import type { FuzzTarget } from "./targets.ts";

export interface FuzzBudget {
  readonly executions: number;
  readonly ms: number;
}

export interface FuzzFinding {
  readonly input: Buffer;
  readonly error: unknown;
}

export interface FuzzOutcome {
  readonly executions: number;
  /** Inputs that reached code which none before them did. */
  readonly found: readonly Buffer[];
  readonly findings: readonly FuzzFinding[];
}

/** Reading the counters costs as much as thousands of inputs: they are read once for so many, and again only where they tell of something new. */
const BATCH = 2_048;
/** Then only the clock is read in between. */
const UNSTEERED_BATCH = 64;
const FINDINGS_MAX = 20;

/**
 * Feeds a target with neighbours of what it has seen; an input that reaches new code joins the corpus. Without `coverage` nothing joins. The
 * same seed and corpus give the same inputs, until the clock ends the run.
 */
export function fuzz(
  target: FuzzTarget,
  corpus: readonly Buffer[],
  coverage: Coverage | null,
  random: Random,
  budget: FuzzBudget,
): FuzzOutcome {
  const pool = [...target.seeds, ...corpus];
  const found: Buffer[] = [];
  const findings: FuzzFinding[] = [];
  const run = (input: Buffer): void => {
    try {
      target.run(input);
    } catch (error) {
      if (findings.length < FINDINGS_MAX) findings.push({ input, error });
    }
  };
  /** Halves what has news until single inputs are left. */
  const findNew = (inputs: readonly Buffer[]): Buffer[] => {
    coverage?.skip();
    for (const input of inputs) run(input);
    if (coverage?.news(inputs.length === 1) !== true) return [];
    if (inputs.length === 1) return [inputs[0]!];
    const middle = inputs.length >> 1;
    return [...findNew(inputs.slice(0, middle)), ...findNew(inputs.slice(middle))];
  };
  for (const input of pool) run(input);
  coverage?.news(true);
  const until = systemClock.mono() + budget.ms;
  let executions = pool.length;
  while (executions < budget.executions && findings.length < FINDINGS_MAX && systemClock.mono() < until) {
    const batch = Array.from({ length: coverage === null ? UNSTEERED_BATCH : BATCH }, () =>
      mutate(pick(pool, random), pick(pool, random), target.words, random),
    );
    executions += batch.length;
    const fresh = findNew(batch);
    pool.push(...fresh);
    found.push(...fresh);
  }
  return { executions, found, findings };
}

/** Those of the inputs that it takes to reach what all of them reach, the short ones first. */
export function smallest(target: FuzzTarget, inputs: readonly Buffer[]): Buffer[] {
  using coverage = new Coverage();
  const reaches = (input: Buffer): boolean => {
    coverage.skip();
    try {
      target.run(input);
    } catch {
      // Found once already.
    }
    return coverage.news(true);
  };
  for (const seed of target.seeds) reaches(seed);
  return inputs.toSorted((a, b) => a.length - b.length).filter(reaches);
}

const pick = (pool: readonly Buffer[], random: Random): Buffer => pool[Math.floor(random.next() * pool.length)]!;
