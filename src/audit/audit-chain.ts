import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { ChainEntry, ChainPage } from "../contract/audit-chain.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Signer } from "../kernel/signer.ts";
import { startThread } from "../kernel/start-thread.ts";
import { ThreadCalls } from "../kernel/thread-calls.ts";
import type { ChainRequest, ChainWorkerData } from "./chain-worker.ts";

export interface ChainPorts {
  readonly clock: Clock;
  readonly dataDir: string;
  /** Makes the secret where there is none. */
  readonly signer: () => Promise<Signer>;
}

/** Where the chain of a gateway lies. */
export interface ChainStore {
  /** Stored, on the disk, when it resolves; once, however often it is asked. Ordinals count the entries of this run from 1. */
  append(firstOrdinal: number, entries: readonly ChainEntry[]): Promise<void>;
  /** Lines after a number; `first`: the number that the reader has begun with, null where this is the first page. */
  page(after: number, limit: number, first: number | null): Promise<ChainPage>;
  close(): Promise<void>;
}

const ANSWER_MS_MAX = 5_000;
const RUN_ID_BYTES = 8;

/** The chain in a file of its own, in a thread of its own. Neither is there before something is done that belongs in it. */
export function openChain({ clock, dataDir, signer }: ChainPorts): ChainStore {
  const run = randomBytes(RUN_ID_BYTES).toString("hex");
  let opened: Promise<ThreadCalls<ChainRequest>> | null = null;
  const thread = (): Promise<ThreadCalls<ChainRequest>> => {
    opened ??= signer().then(
      (keys) => startChain(clock, { path: join(dataDir, "audit-chain.db"), keys: keys.keysFor("audit chain") }),
      (error: unknown) => {
        opened = null; // The next one tries again.
        throw error;
      },
    );
    return opened;
  };
  return {
    append: async (firstOrdinal, entries) => {
      await (await thread()).ask<void>((call) => ({ kind: "append", call, run, firstOrdinal, entries }));
    },
    page: async (after, limit, first) =>
      (await thread()).ask<ChainPage>((call) => ({ kind: "page", call, after, limit, first, now: clock.wall() })),
    close: async () => {
      const started = await opened?.catch(() => null);
      await started?.close((call) => ({ kind: "close", call }));
    },
  };
}

const startChain = (clock: Clock, workerData: ChainWorkerData): ThreadCalls<ChainRequest> =>
  new ThreadCalls({
    clock,
    start: () => startThread("chain-worker", import.meta.url, { name: "audit-chain", workerData }),
    answerMsMax: ANSWER_MS_MAX,
    fault: (why) => new Error(why),
    closed: "the audit's chain is closed",
  });
