import { isOver, type BatchRecord, type FileRecord } from "../../contract/batch.ts";
import { viewBatch, viewFile } from "../../contract/batch-view.ts";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { DocKind } from "../../coord/files/file-store.ts";
import { stepBatch } from "../../decide/batches/step-batch.ts";
import type { RequestKey } from "../../access/request-key.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import { actAudited } from "../audit/admin-event.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import { readAdminBody } from "../http/admin-body.ts";
import { freeMemory } from "../http/body-memory.ts";
import type { BatchHandler } from "../http/routes.ts";
import type { RequestContext } from "../http/request-context.ts";
import { sendFailure } from "../http/send-error.ts";
import { sendJson } from "../http/send-json.ts";
import type { Jobs } from "../jobs/open-jobs.ts";
import { writePaced } from "../jobs/job-streams.ts";
import { createBatch } from "./create-batch.ts";
import { runningCounts } from "./running-counts.ts";
import type { FileShelf, Held } from "./file-shelf.ts";
import { Uploads } from "./uploads.ts";

export interface BatchRoutesDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly config: () => GatewayConfig;
  readonly audit: AuditSink;
  readonly jobs: () => Jobs;
  readonly draining: () => boolean;
}

const OPERATORS: readonly string[] = ["operator", "admin"];
const LIST_DEFAULT = { file: 100, batch: 20 } as const;
const LIST_MAX = { file: 1_000, batch: 100 } as const;
const UNKNOWN = { file: "FILE_UNKNOWN", batch: "BATCH_UNKNOWN" } as const;

/** `/v1/files`, `/v1/batches` and below, as the OpenAI API has them. Each key sees its own. */
export class BatchRoutes {
  readonly #deps: BatchRoutesDeps;
  readonly #uploads: Uploads;

  constructor(deps: BatchRoutesDeps) {
    this.#deps = deps;
    this.#uploads = new Uploads(deps);
  }

  handle(context: RequestContext, handler: BatchHandler, expectsContinue: boolean): void {
    let gone = false;
    context.res.onGone = () => (gone = true);
    this.#answer(context, handler, expectsContinue).catch((error: unknown) => {
      if (gone) return;
      const { begun } = context.res;
      sendFailure(context, error, this.#deps);
      if (begun) context.res.breakOff(); // There is no place in it for an error.
    });
  }

  async #answer(context: RequestContext, handler: BatchHandler, expectsContinue: boolean): Promise<void> {
    switch (handler) {
      case "fileUpload":
        return sendJson(context, 200, viewFile(await this.#uploads.take(context, expectsContinue)));
      case "fileList":
        return sendJson(context, 200, await this.#list(context, "file"));
      case "fileGet":
        return sendJson(context, 200, viewFile((await this.#file(context)).record));
      case "fileContent":
        return this.#content(context);
      case "fileDelete":
        return this.#delete(context);
      case "batchCreate": {
        // Read before anything is waited for, as the port wants.
        const body = readAdminBody(context.req, this.#deps);
        const { draining, config } = this.#deps;
        if (draining()) throw new YardmasterError("DRAINING", "the gateway is stopping");
        const { batches } = this.#deps.jobs();
        const batch = await createBatch(await body, context.key, await batches.used(), config().batches);
        batches.driveSoon();
        return sendJson(context, 200, viewBatch(batch, { completed: 0, failed: 0 }));
      }
      case "batchList":
        return sendJson(context, 200, await this.#list(context, "batch"));
      case "batchGet":
        return sendJson(context, 200, await this.#view((await this.#batch(context)).record));
      case "batchCancel":
        return this.#cancel(context);
      default:
        return handler satisfies never;
    }
  }

  async #list(context: RequestContext, kind: DocKind): Promise<Record<string, unknown>> {
    const shelf = await this.#deps.jobs().batches.used();
    const query = readListQuery(new URLSearchParams(context.query), kind);
    const { key } = context;
    const after = query.after === null ? null : await this.#find(shelf, kind, query.after, key);
    if (after === undefined) throw new YardmasterError("BAD_REQUEST", `after: there is no such ${kind}`);
    const docs =
      (await shelf?.store.list({
        kind,
        keyId: OPERATORS.includes(key.role) ? null : key.id,
        limit: query.limit + 1,
        after: after?.seq ?? null,
        oldestFirst: query.oldestFirst,
      })) ?? [];
    const records = docs.slice(0, query.limit).map((doc) => JSON.parse(doc.text) as FileRecord | BatchRecord);
    const data = await Promise.all(
      records.map(async (record) => ("purpose" in record ? viewFile(record) : this.#view(record))),
    );
    return {
      object: "list",
      data: query.purpose === null ? data : data.filter((each) => each["purpose"] === query.purpose),
      first_id: records[0]?.id ?? null,
      last_id: records.at(-1)?.id ?? null,
      has_more: docs.length > query.limit,
    };
  }

  async #content(context: RequestContext): Promise<void> {
    const { record } = await this.#file(context);
    const { res, requestId } = context;
    const shelf = await this.#shelf("file");
    const headers = ["content-type", "application/octet-stream", "cache-control", "no-store"];
    headers.push("x-content-type-options", "nosniff", "content-disposition", "attachment", "x-request-id", requestId);
    const pieces = shelf.bytes(record);
    // The first piece comes before the head, so that a file which can't be read is an error and no broken answer.
    let piece = await pieces.next();
    if (!res.begin(200, headers, record.bytes)) return;
    while (piece.done !== true) {
      if (!(await writePaced(res, piece.value, this.#deps.clock, true))) return;
      if (res.untakenBytes === 0) freeMemory(piece.value);
      piece = await pieces.next();
    }
    res.end([]);
  }

  async #delete(context: RequestContext): Promise<void> {
    const { record } = await this.#file(context);
    const shelf = await this.#shelf("file");
    for (const id of record.heldBy) {
      const batch = await shelf.batch(id);
      if (batch !== undefined && !isOver(batch.record.state))
        throw new YardmasterError("FILE_IN_USE", `the batch ${id} reads this file`);
    }
    await this.#asOwner(context, record.keyId, `/v1/files/${record.id}`, () => shelf.forget(record.id));
    sendJson(context, 200, { id: record.id, object: "file", deleted: true });
  }

  async #cancel(context: RequestContext): Promise<void> {
    const { record: first } = await this.#batch(context);
    const shelf = await this.#shelf("batch");
    const cancelled = await this.#asOwner(context, first.keyId, `/v1/batches/${first.id}`, async () => {
      for (;;) {
        const { record, version } = await this.#batch(context);
        const step = stepBatch(record, { kind: "cancel" }, await shelf.store.now());
        if (step.kind === "same") return record;
        if (step.kind === "refused") throw new YardmasterError("BATCH_OVER", `the batch is ${record.state}`);
        if (await shelf.writeBatch(step.batch, version)) return step.batch;
      }
    });
    this.#deps.jobs().batches.driveSoon();
    sendJson(context, 200, await this.#view(cancelled));
  }

  /** One's own is one's own; what an operator does with somebody else's is on record first. */
  #asOwner<T>(context: RequestContext, owner: string, target: string, act: () => Promise<T>): Promise<T> {
    return owner === context.key.id ? act() : actAudited(this.#deps, context, target, 200, act);
  }

  async #view(batch: BatchRecord): Promise<Record<string, unknown>> {
    const jobs = this.#deps.jobs();
    const running = batch.open.some((chunk) => chunk.jobs.length > 0);
    return viewBatch(batch, await runningCounts(batch, running ? await jobs.store() : null));
  }

  async #shelf(kind: DocKind): Promise<FileShelf> {
    const shelf = await this.#deps.jobs().batches.used();
    if (shelf === null) throw unknown(kind);
    return shelf;
  }

  async #file(context: RequestContext): Promise<Held<FileRecord>> {
    const found = await this.#find(await this.#deps.jobs().batches.used(), "file", context.rest, context.key);
    if (found === undefined) throw unknown("file");
    return found as Held<FileRecord>;
  }

  async #batch(context: RequestContext): Promise<Held<BatchRecord>> {
    const found = await this.#find(await this.#deps.jobs().batches.used(), "batch", context.rest, context.key);
    if (found === undefined) throw unknown("batch");
    return found as Held<BatchRecord>;
  }

  /** Another key's is as one that is not there. */
  async #find(
    shelf: FileShelf | null,
    kind: DocKind,
    id: string,
    key: RequestKey,
  ): Promise<Held<FileRecord | BatchRecord> | undefined> {
    const found = await (kind === "file" ? shelf?.file(id) : shelf?.batch(id));
    if (found === undefined || ("ready" in found.record && !found.record.ready)) return undefined;
    return found.record.keyId === key.id || OPERATORS.includes(key.role) ? found : undefined;
  }
}

const unknown = (kind: DocKind): YardmasterError =>
  new YardmasterError(UNKNOWN[kind], `there is no ${kind} of this id`);

interface ListQuery {
  readonly limit: number;
  readonly after: string | null;
  readonly oldestFirst: boolean;
  readonly purpose: string | null;
}

function readListQuery(query: URLSearchParams, kind: DocKind): ListQuery {
  const limit = query.get("limit") ?? String(LIST_DEFAULT[kind]);
  const order = query.get("order") ?? "desc";
  const after = query.get("after");
  const mistakes: string[] = [];
  if (!/^[1-9][0-9]{0,4}$/.test(limit)) mistakes.push(`limit: use 1 to ${LIST_MAX[kind]}`);
  if (order !== "asc" && order !== "desc") mistakes.push("order: use asc or desc");
  if (after !== null && after.length > 100) mistakes.push("after: use an id of the page before");
  if (mistakes.length > 0) throw new YardmasterError("BAD_REQUEST", mistakes.join("; "));
  return {
    limit: Math.min(Number(limit), LIST_MAX[kind]),
    after,
    oldestFirst: order === "asc",
    purpose: query.get("purpose"),
  };
}
