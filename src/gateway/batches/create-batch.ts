import { batchAsk, windowMs, type BatchAsk } from "../../contract/batch-view.ts";
import { isOver, type BatchRecord } from "../../contract/batch.ts";
import type { BatchSettings } from "../../contract/gateway-config.ts";
import type { RequestKey } from "../../access/request-key.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import { newId, type FileShelf } from "./file-shelf.ts";

/** Batches of one file that have not ended. */
const HELD_BY_MAX = 200;

/** Takes a batch: it is durable when this resolves. The lines are read later, and what is wrong with them is told by the batch. */
export async function createBatch(
  body: unknown,
  key: RequestKey,
  shelf: FileShelf | null,
  settings: BatchSettings,
): Promise<BatchRecord> {
  const asked = readAsk(body, settings);
  if (!key.classes.includes("batch"))
    throw new YardmasterError("CLASS_FORBIDDEN", "this key may not use class batch, which a batch's lines have");
  const missing = new YardmasterError("FILE_UNKNOWN", "input_file_id: there is no file of this id");
  if (shelf === null) throw missing;
  const input = await shelf.file(asked.input_file_id);
  if (input === undefined || !input.record.ready || input.record.keyId !== key.id) throw missing;
  if (input.record.purpose !== "batch")
    throw new YardmasterError("BAD_REQUEST", "input_file_id: its purpose is not batch");
  const batch = newBatch(asked, key, settings, await shelf.store.now());
  await hold(shelf, batch);
  const outcome = await shelf.createBatch(batch);
  if (outcome === "created") return batch;
  await shelf.changeFile(batch.inputFileId, (file) => ({
    ...file,
    heldBy: file.heldBy.filter((id) => id !== batch.id),
  }));
  throw new YardmasterError(
    "FILES_FULL",
    outcome === "open"
      ? "as many batches of this key are open as may be (batches.max_open)"
      : "as many files and batches are kept as may be (batches.max_files)",
  );
}

function readAsk(body: unknown, settings: BatchSettings): BatchAsk {
  const parsed = batchAsk.safeParse(body);
  if (!parsed.success) {
    const issues = parsed.error.issues
      .slice(0, 20)
      .map(({ path, message }) => (path.length === 0 ? message : `${path.map(String).join(".")}: ${message}`));
    throw new YardmasterError("BAD_REQUEST", issues.join("; "));
  }
  if (windowMs(parsed.data.completion_window) > settings.windowMsMax)
    throw new YardmasterError(
      "BAD_REQUEST",
      `completion_window: at most ${settings.windowMsMax / 3_600_000} hours (batches.max_window_h)`,
    );
  return parsed.data;
}

/** The file stays for as long as the batch needs it. */
async function hold(shelf: FileShelf, batch: BatchRecord): Promise<void> {
  const over = new Set<string>();
  const found = await shelf.file(batch.inputFileId);
  for (const id of found?.record.heldBy ?? []) {
    const other = await shelf.batch(id);
    if (other === undefined || isOver(other.record.state)) over.add(id);
  }
  const held = await shelf.changeFile(batch.inputFileId, (file) => {
    const heldBy = [...file.heldBy.filter((id) => !over.has(id)), batch.id];
    if (heldBy.length > HELD_BY_MAX)
      throw new YardmasterError("FILES_FULL", `${HELD_BY_MAX} batches read this file already`);
    return { ...file, heldBy, expiresAt: Math.max(file.expiresAt, batch.expiresAt + batch.keepMs) };
  });
  if (held === undefined) throw new YardmasterError("FILE_UNKNOWN", "input_file_id: there is no file of this id");
}

function newBatch(asked: BatchAsk, key: RequestKey, settings: BatchSettings, now: number): BatchRecord {
  const kept = asked.output_expires_after;
  return {
    id: newId("batch_"),
    keyId: key.id,
    weight: key.weight,
    allowExternal: key.allowExternal,
    endpoint: asked.endpoint,
    inputFileId: asked.input_file_id,
    window: asked.completion_window,
    metadata: asked.metadata ?? null,
    createdAt: now,
    expiresAt: now + windowMs(asked.completion_window),
    keepMs: settings.keepMs,
    outputKeepMs: kept === null || kept === undefined ? settings.keepMs : kept.seconds * 1_000,
    state: "validating",
    inProgressAt: null,
    finalizingAt: null,
    endedAt: null,
    cancellingAt: null,
    problems: [],
    total: null,
    cursor: { line: 0, offset: 0 },
    open: [],
    settled: [],
    outputFileId: newId("file-"),
    errorFileId: newId("file-"),
    driver: null,
  };
}
