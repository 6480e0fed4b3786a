import { z } from "zod";
import { shardFailure, startVerb } from "../../contract/agent-link.ts";

/**
 * What is kept of an engine from before its start until it is forgotten. Holds the engine's key: its file is for the owner
 * alone.
 */
const processId = z.object({ pid: z.number().int(), startTicks: z.number() });

export const shardRecord = z.object({
  /** Of its record, log and folder. */
  fileName: z.string().regex(/^[A-Za-z0-9_-]{1,200}$/),
  bootId: z.string(),
  start: startVerb,
  /** In the environment of every process of the engine. */
  proof: z.string(),
  /** Null before it was started, and between the start and its record. */
  main: processId.nullable(),
  /** Whether the agent has gone as far as to start it. */
  spawned: z.boolean(),
  port: z.number().int().nullable(),
  served: z.boolean(),
  /** ms; null while nobody has asked it to stop. */
  stopGraceMs: z.number().nullable(),
  /** How it ended; null while it lives. */
  ended: z
    .object({
      state: z.enum(["stopped", "failed"]),
      failure: shardFailure.nullable(),
      blockedBy: z.string().nullable(),
    })
    .nullable(),
  /** Memory in use on its cards before the start, by uuid; null where it was not known. */
  usedBeforeMib: z.record(z.string(), z.number().nullable()),
});
export type ShardRecord = z.output<typeof shardRecord>;
