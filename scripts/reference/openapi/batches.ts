import { batchAsk } from "../../../src/contract/batch-view.ts";
import type { BatchHandler } from "../../../src/gateway/http/routes.ts";
import type { ErrorCode } from "../../../src/kernel/errors.ts";
import { type AnswerDoc, type JsonSchema, type OperationDoc, pathText, type QueryDoc } from "./document.ts";
import { ok } from "./parts.ts";

// Files and batches, as the OpenAI API has them.

const nullable = (type: string): JsonSchema => ({ type: [type, "null"] });
const FILE: JsonSchema = {
  type: "object",
  required: ["id", "object", "bytes", "created_at", "expires_at", "filename", "purpose", "status"],
  properties: {
    id: { type: "string" },
    object: { const: "file" },
    bytes: { type: "integer" },
    created_at: { type: "integer" },
    expires_at: { type: "integer" },
    filename: { type: "string" },
    purpose: { type: "string" },
    status: { const: "processed" },
    status_details: { type: "null" },
  },
};
const BATCH: JsonSchema = {
  type: "object",
  required: ["id", "object", "endpoint", "input_file_id", "completion_window", "status", "request_counts"],
  properties: {
    id: { type: "string" },
    object: { const: "batch" },
    endpoint: { type: "string" },
    errors: nullable("object"),
    input_file_id: { type: "string" },
    completion_window: { type: "string" },
    status: { type: "string" },
    output_file_id: nullable("string"),
    error_file_id: nullable("string"),
    request_counts: {
      type: "object",
      required: ["total", "completed", "failed"],
      properties: { total: { type: "integer" }, completed: { type: "integer" }, failed: { type: "integer" } },
    },
    metadata: nullable("object"),
  },
};

const listOf = (items: JsonSchema): { readonly 200: AnswerDoc } => ({
  200: {
    description: "A page.",
    schema: {
      type: "object",
      required: ["object", "data", "first_id", "last_id", "has_more"],
      properties: {
        object: { const: "list" },
        data: { type: "array", items },
        first_id: nullable("string"),
        last_id: nullable("string"),
        has_more: { type: "boolean" },
      },
    },
  },
});
const AFTER: QueryDoc = {
  name: "after",
  description: "The last id of the page before.",
  schema: { type: "string", pattern: "^[A-Za-z0-9_-]{1,100}$" },
};
const LIMIT: QueryDoc = {
  name: "limit",
  description: "At most so many.",
  schema: { type: "integer", minimum: 1, maximum: 99_999 },
};
const ORDER: QueryDoc = {
  name: "order",
  description: "Absent: desc, the newest first.",
  schema: { enum: ["asc", "desc"] },
};
const FILE_ID = { file: pathText("Id of a file.", "[A-Za-z0-9_-]{1,100}") };
const BATCH_ID = { batch: pathText("Id of a batch.", "[A-Za-z0-9_-]{1,100}") };
const STORE: readonly ErrorCode[] = ["JOB_STORE_UNAVAILABLE", "FILE_STORE_UNAVAILABLE"];
const OF_FILES: readonly ErrorCode[] = ["FILE_UNKNOWN", ...STORE];
const OF_BATCHES: readonly ErrorCode[] = ["BATCH_UNKNOWN", ...STORE];

export const BATCH_OPERATIONS: Readonly<Record<BatchHandler, OperationDoc>> = {
  fileUpload: {
    summary: "Takes a file of calls",
    body: {
      required: true,
      content: {
        "multipart/form-data": {
          type: "object",
          required: ["purpose", "file"],
          additionalProperties: false,
          properties: { purpose: { const: "batch" }, file: { type: "string", format: "binary" } },
        },
      },
    },
    answers: ok("Kept.", FILE),
    errors: ["FILES_FULL", "QUEUE_FULL", "DRAINING", "MEDIA_TYPE_UNSUPPORTED", ...STORE],
  },
  fileList: {
    summary: "The key's files; for operators, all",
    query: [LIMIT, AFTER, ORDER, { name: "purpose", description: "Only of this purpose.", schema: { type: "string" } }],
    answers: listOf(FILE),
    errors: STORE,
  },
  fileGet: { summary: "A file, without its bytes", rest: FILE_ID, answers: ok("It.", FILE), errors: OF_FILES },
  fileContent: {
    summary: "The bytes of a file",
    rest: FILE_ID,
    answers: { 200: { description: "They.", schema: {}, types: ["application/octet-stream"] } },
    errors: OF_FILES,
  },
  fileDelete: {
    summary: "Forgets a file",
    rest: FILE_ID,
    answers: ok("Done.", {
      type: "object",
      required: ["id", "object", "deleted"],
      properties: { id: { type: "string" }, object: { const: "file" }, deleted: { const: true } },
    }),
    errors: ["FILE_IN_USE", "AUDIT_UNAVAILABLE", ...OF_FILES],
  },
  batchCreate: {
    summary: "Has the calls of a file made",
    body: { required: true, content: { "application/json": batchAsk } },
    answers: ok("Taken.", BATCH),
    errors: ["FILE_UNKNOWN", "FILES_FULL", "CLASS_FORBIDDEN", "DRAINING", ...STORE],
  },
  batchList: {
    summary: "The key's batches; for operators, all",
    query: [LIMIT, AFTER, ORDER],
    answers: listOf(BATCH),
    errors: STORE,
  },
  batchGet: { summary: "A batch", rest: BATCH_ID, answers: ok("It.", BATCH), errors: OF_BATCHES },
  batchCancel: {
    summary: "Ends a batch",
    rest: BATCH_ID,
    answers: ok("It.", BATCH),
    errors: ["BATCH_OVER", "AUDIT_UNAVAILABLE", ...OF_BATCHES],
  },
};
