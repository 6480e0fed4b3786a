import { z } from "zod";
import type { BatchRecord, BatchState, FileRecord } from "./batch.ts";

/** Calls that a line may make: those of the OpenAI API, and ours that answer with JSON. */
export const BATCH_ENDPOINTS = [
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/embeddings",
  "/v1/responses",
  "/v1/moderations",
  "/v1/images/generations",
  "/v1/messages",
  "/v1/rerank",
  "/v1/score",
  "/v1/classify",
] as const;

const KEPT_S_MIN = 3_600;
const KEPT_S_MAX = 2_592_000;

/** `N` and a unit: `24h`, `30m`. */
const WINDOW = /^([1-9][0-9]{0,5})([smhd])$/;
const UNIT_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

export const keptFor = z.strictObject({
  anchor: z.literal("created_at"),
  seconds: z.coerce.number().int().min(KEPT_S_MIN).max(KEPT_S_MAX),
});

/** The body of `POST /v1/batches`. */
export const batchAsk = z.strictObject({
  input_file_id: z.string().min(1).max(100),
  endpoint: z.enum(BATCH_ENDPOINTS),
  completion_window: z.string().regex(WINDOW, "use a number with s, m, h or d behind it, such as 24h"),
  metadata: z
    .record(z.string().min(1).max(64), z.string().max(512))
    .refine((value) => Object.keys(value).length <= 16, "use at most 16 keys")
    .nullish(),
  output_expires_after: keptFor.nullish(),
});
export type BatchAsk = z.output<typeof batchAsk>;

export function windowMs(text: string): number {
  const [, count = "0", unit = "s"] = WINDOW.exec(text) ?? [];
  return Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS];
}

const seconds = (ms: number): number => Math.floor(ms / 1_000);

/** A file as the OpenAI API has it. */
export const viewFile = (file: FileRecord): Record<string, unknown> => ({
  id: file.id,
  object: "file",
  bytes: file.bytes,
  created_at: seconds(file.createdAt),
  expires_at: seconds(file.expiresAt),
  filename: file.filename,
  purpose: file.purpose,
  status: "processed",
  status_details: null,
});

/** A batch as the OpenAI API has it. `counts`: of lines whose jobs still run too. */
export function viewBatch(
  batch: BatchRecord,
  counts: { readonly completed: number; readonly failed: number },
): Record<string, unknown> {
  const { state, problems, endedAt } = batch;
  const at = (ms: number | null): number | null => (ms === null ? null : seconds(ms));
  const ended = (wanted: BatchState): number | null => (state === wanted ? at(endedAt) : null);
  const results = batch.settled.filter((result) => result !== null);
  const has = (bytes: (result: (typeof results)[number]) => number): boolean =>
    endedAt !== null && results.some((result) => bytes(result) > 0);
  return {
    id: batch.id,
    object: "batch",
    endpoint: batch.endpoint,
    errors: problems.length === 0 ? null : { object: "list", data: problems },
    input_file_id: batch.inputFileId,
    completion_window: batch.window,
    status: state,
    output_file_id: has(({ outputBytes }) => outputBytes) ? batch.outputFileId : null,
    error_file_id: has(({ errorBytes }) => errorBytes) ? batch.errorFileId : null,
    created_at: seconds(batch.createdAt),
    in_progress_at: at(batch.inProgressAt),
    expires_at: seconds(batch.expiresAt),
    finalizing_at: at(batch.finalizingAt),
    completed_at: ended("completed"),
    failed_at: ended("failed"),
    expired_at: ended("expired"),
    cancelling_at: at(batch.cancellingAt),
    cancelled_at: ended("cancelled"),
    request_counts: { total: batch.total ?? 0, ...counts },
    metadata: batch.metadata,
  };
}
