/** A file of a client, or one that a batch made for it. Times are epoch milliseconds by the clock of the store. */
export interface FileRecord {
  readonly id: string;
  readonly keyId: string;
  readonly filename: string;
  readonly purpose: "batch" | "batch_output";
  /** Until it is whole nobody but its writer knows of it. */
  readonly ready: boolean;
  readonly bytes: number;
  readonly createdAt: number;
  readonly expiresAt: number;
  /** Where its bytes are, in order. */
  readonly segments: readonly FileSegment[];
  /** Batches that read it, as far as they have not ended. */
  readonly heldBy: readonly string[];
}

/** So many pieces named `name.0` and on. */
export interface FileSegment {
  readonly name: string;
  readonly pieces: number;
}

export const BATCH_STATES = [
  "validating",
  "failed",
  "in_progress",
  "finalizing",
  "completed",
  "expired",
  "cancelling",
  "cancelled",
] as const;
export type BatchState = (typeof BATCH_STATES)[number];

/** What is wrong with a batch's input. `line` counts the file's lines from 1; null: it is about the whole file. */
export interface BatchProblem {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  readonly line: number | null;
}

/** Why lines were not carried out. */
export type BatchVoid = "batch_cancelled" | "batch_expired";

/** Lines of the input that follow each other, and the jobs that carry them out: one for each model among them. */
export interface BatchChunk {
  readonly index: number;
  /** In the input. */
  readonly offset: number;
  readonly bytes: number;
  /** The first one's number among the lines of the batch, from 0, and how many there are. */
  readonly line: number;
  readonly lines: number;
  /** Ids; none where the lines are not carried out. */
  readonly jobs: readonly string[];
  readonly void: BatchVoid | null;
}

/** What became of the lines of one chunk: their places in the output and in the error file. */
export interface ChunkResult {
  readonly name: string;
  readonly outputPieces: number;
  readonly outputBytes: number;
  readonly errorPieces: number;
  readonly errorBytes: number;
  readonly completed: number;
  readonly failed: number;
  /** Of the failed ones those whose time was over. */
  readonly expired: number;
}

/** A batch as it is stored. What it needs to go on after a crash is here, and in its files and jobs. */
export interface BatchRecord {
  readonly id: string;
  readonly keyId: string;
  readonly weight: number;
  readonly allowExternal: boolean;
  readonly endpoint: string;
  readonly inputFileId: string;
  readonly window: string;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly createdAt: number;
  /** What has not ended by then is not carried out any more. */
  readonly expiresAt: number;
  /** How long the batch and its files are kept after that. */
  readonly keepMs: number;
  /** How long its output files are kept from their making. */
  readonly outputKeepMs: number;

  readonly state: BatchState;
  readonly inProgressAt: number | null;
  readonly finalizingAt: number | null;
  /** When it came to its end, whichever. */
  readonly endedAt: number | null;
  readonly cancellingAt: number | null;
  readonly problems: readonly BatchProblem[];
  /** Null until the input was read. */
  readonly total: number | null;
  /** Up to where chunks were made of the input. */
  readonly cursor: { readonly line: number; readonly offset: number };
  readonly open: readonly BatchChunk[];
  /** By the chunk's index; null: it is open. */
  readonly settled: readonly (ChunkResult | null)[];
  /** Files that its lines go to; shown to the client when the batch has ended. */
  readonly outputFileId: string;
  readonly errorFileId: string;
  /** Who drives it; saves double work, and nothing depends on it. */
  readonly driver: { readonly token: string; readonly until: number } | null;
}

export const isOver = (state: BatchState): boolean =>
  state === "completed" || state === "failed" || state === "expired" || state === "cancelled";
