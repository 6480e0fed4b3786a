import { z } from "zod";
import { issuedKey, keyList, newKeyAsk, revokedKey, rotateKeyRequest } from "../../../src/contract/admin-keys.ts";
import { AUDIT_LIMIT_MAX, AUDIT_TIME_HINT } from "../../../src/contract/audit-params.ts";
import { gpuClearView, gpuHealthView } from "../../../src/contract/gpu-health-view.ts";
import { jobSubmission } from "../../../src/contract/job-submission.ts";
import { JOB_STATES } from "../../../src/contract/job.ts";
import { jobView } from "../../../src/contract/job-view.ts";
import { USAGE_GROUPS, USAGE_LIMIT_MAX, usageView } from "../../../src/contract/usage-view.ts";
import { type Handler, type Route, ROUTES } from "../../../src/gateway/http/routes.ts";
import type { ErrorCode } from "../../../src/kernel/errors.ts";
import { BATCH_OPERATIONS } from "./batches.ts";
import { OVERFLOW_OPERATIONS } from "./overflow.ts";
import {
  type AnswerDoc,
  ID_IN_PATH,
  type JsonSchema,
  type OperationDoc,
  pathText,
  type QueryDoc,
  renderDocument,
} from "./document.ts";
import { JSON_TYPE, body, chainOperation, ok, text, whole } from "./parts.ts";

const words = (name: string, description: string, maxLength = 512): QueryDoc => ({
  name,
  description,
  schema: { type: "string", minLength: 1, maxLength },
});

const moment = (name: string): QueryDoc => ({
  name,
  description: AUDIT_TIME_HINT,
  schema: {
    anyOf: [
      { type: "string", pattern: "^[0-9]{1,6}[smhd]$" },
      { type: "string", format: "date-time" },
    ],
  },
});

/** What an engine answers with is the engine's own: it passes through, with any status. */
const ENGINES_OWN: AnswerDoc = {
  description: "The engine's own answer, as it wrote it.",
  schema: {},
  types: ["*/*"],
};
const CALL_ERRORS: readonly ErrorCode[] = [
  "MODEL_UNKNOWN",
  "CLASS_UNKNOWN",
  "CLASS_FORBIDDEN",
  "MODEL_FORBIDDEN",
  "EXTERNAL_UPSTREAM_FORBIDDEN",
  "QUEUE_FULL",
  "GPU_SATURATED",
  "KEY_QUOTA_SPENT",
  "REQUEST_OVER_LIMIT",
  "KEY_COUNTS_UNAVAILABLE",
  "QUEUE_TIMEOUT",
  "UPSTREAM_UNAVAILABLE",
  "COLD_START",
  "UPSTREAM_ERROR",
  "UPSTREAM_PROTOCOL",
  "UPSTREAM_TIMEOUT",
  "IDEMPOTENCY_IN_PROGRESS",
  "IDEMPOTENCY_MISMATCH",
  "MEDIA_TYPE_UNSUPPORTED",
  "DRAINING",
];
const JOB_STORE: readonly ErrorCode[] = ["JOB_STORE_UNAVAILABLE"];
const JOB_ERRORS: readonly ErrorCode[] = ["JOB_UNKNOWN", "JOB_IN_OTHER_STORE", "STORE_LOST", ...JOB_STORE];
const JOB = { job: pathText("Id of a job.", "[A-Za-z0-9_-]{1,100}") };
const WAIT = whole("wait", "Seconds to wait for the end of the job.", 0, 300);

const MODEL_CARD: JsonSchema = {
  type: "object",
  required: ["id", "object", "created", "owned_by", "state", "reason"],
  properties: {
    id: { type: "string" },
    object: { const: "model" },
    created: { type: "integer" },
    owned_by: { type: "string" },
    state: { enum: ["ready", "starting", "stopped", "unavailable"] },
    reason: { type: ["string", "null"] },
  },
};
const HEALTH: JsonSchema = {
  type: "object",
  required: ["version", "started_at", "coordination", "draining", "config", "audit", "jobs", "upstreams"],
  properties: {
    version: { type: "string" },
    started_at: { type: "string" },
    coordination: { type: "object" },
    control: { type: ["object", "null"] },
    draining: { type: "boolean" },
    config: { type: "object" },
    audit: { type: "object" },
    jobs: { type: "object" },
    upstreams: { type: "array", items: { type: "object", required: ["id"] } },
  },
};
const AUDIT_PAGE: JsonSchema = {
  type: "object",
  required: ["records", "gaps", "lastSeq", "dropped"],
  properties: {
    records: { type: "array", items: { type: "object", required: ["seq"] } },
    gaps: { type: "array", items: { type: "object" } },
    lastSeq: { type: "integer" },
    dropped: { type: "integer" },
  },
};

const MULTIPART: readonly string[] = [
  "/v1/audio/transcriptions",
  "/v1/audio/translations",
  "/v1/images/edits",
  "/v1/images/variations",
];
const CALL_HEADERS: readonly QueryDoc[] = [
  {
    name: "x-yardmaster-class",
    description: "One of the key's classes. Absent: its first.",
    schema: { enum: ["interactive", "system", "batch"] },
  },
];

function inference({ pattern }: Route): OperationDoc | null {
  // Whatever else lies below /v1 and names a model in its body goes to an engine as well: a path can't say so.
  if (pattern.includes("*")) return null;
  const fields: JsonSchema = {
    type: "object",
    required: ["model"],
    properties: { model: { type: "string", minLength: 1, maxLength: 256 } },
  };
  return {
    summary: `To an engine, as it is: ${pattern.slice("/v1/".length)}`,
    headers: CALL_HEADERS,
    body: {
      description: "The engine's own; the gateway looks at `model`, and passes everything on.",
      required: true,
      content: MULTIPART.includes(pattern)
        ? {
            "multipart/form-data": {
              ...fields,
              propertyNames: { pattern: "^[a-z_]{1,40}$" },
              properties: { model: { type: "string" }, file: { type: "string", format: "binary" } },
            },
          }
        : { [JSON_TYPE]: fields },
    },
    answers: { default: ENGINES_OWN },
    errors: CALL_ERRORS,
  };
}

const DOCUMENT_MODEL = { modelId: pathText("Id of a document model.", "[a-zA-Z0-9][a-zA-Z0-9._~-]{1,63}") };
const API_VERSION: QueryDoc = {
  name: "api-version",
  description: "As Azure's clients send it.",
  schema: { type: "string", pattern: "^20[0-9]{2}-[0-9]{2}-[0-9]{2}(-preview)?$" },
  required: true,
};

const documentSubmit: OperationDoc = {
  summary: "Submits a document, as Azure's Document Intelligence does",
  rest: DOCUMENT_MODEL,
  query: [API_VERSION],
  body: {
    required: true,
    content: {
      [JSON_TYPE]: { type: "object", properties: { urlSource: { type: "string" }, base64Source: { type: "string" } } },
      "application/octet-stream": { type: "string", format: "binary" },
    },
  },
  answers: { 202: { description: "Accepted.", headers: { "Operation-Location": "Where the result is asked for." } } },
  errors: [...CALL_ERRORS, ...JOB_STORE],
};
const documentResult: OperationDoc = {
  summary: "A document's operation",
  rest: { ...DOCUMENT_MODEL, resultId: pathText("Id of the operation.", "[A-Za-z0-9_-]{1,100}") },
  restPath: "{modelId}/analyzeResults/{resultId}",
  query: [API_VERSION],
  answers: { 200: { description: "The operation.", schema: { type: "object" } }, 204: { description: "Deleted." } },
  errors: ["MODEL_UNKNOWN", ...JOB_ERRORS],
};

export const USAGE_OPERATION: OperationDoc = {
  summary: "What keys have used; a client's key is shown its own alone",
  query: [
    { name: "from", description: "The first day, UTC.", schema: { type: "string", format: "date" } },
    { name: "to", description: "The last day, UTC.", schema: { type: "string", format: "date" } },
    words("key_id", "Only of this key.", 1_024),
    words("model", "Only of this model.", 1_024),
    {
      name: "group",
      description: `What it is parted by: ${USAGE_GROUPS.join(", ")}, with commas.`,
      schema: { enum: ["day", "key", "model", "day,key", "day,model", "key,model", "day,key,model"] },
    },
    { name: "format", description: "Absent: json.", schema: { enum: ["json", "csv"] } },
    whole("limit", "Rows at most.", 1, USAGE_LIMIT_MAX),
    words("cursor", "Where a page begins, as the one before it says.", 1_024),
  ],
  answers: {
    200: {
      description: "The rows.",
      schema: usageView,
      types: ["application/json", "text/csv"],
    },
  },
  errors: ["USAGE_UNAVAILABLE"],
};

/** An entry for each handler: one that is missing is an error of types. Null: the document's description says why. */
const OPERATIONS: Readonly<
  Record<Handler, OperationDoc | null | ((route: Route, method: string) => OperationDoc | null)>
> = {
  inference,
  upstream: null,
  ...BATCH_OPERATIONS,
  models: {
    summary: "The models that the key can use",
    answers: ok("They.", {
      type: "object",
      required: ["object", "data"],
      properties: { object: { const: "list" }, data: { type: "array", items: MODEL_CARD } },
    }),
    errors: [],
  },
  model: {
    summary: "One model",
    rest: { model: pathText("Its name.", "[A-Za-z0-9][A-Za-z0-9._:@+-]{0,255}") },
    answers: ok("It.", MODEL_CARD),
    errors: ["MODEL_UNKNOWN"],
  },
  healthz: { summary: "It lives", answers: text("It does."), errors: [] },
  readyz: { summary: "It can take requests", answers: text("It can."), errors: ["DRAINING", "UPSTREAM_UNAVAILABLE"] },
  health: { summary: "The state of everything, for operators", answers: ok("The state.", HEALTH), errors: [] },
  metrics: {
    summary: "Metrics, as Prometheus text or OpenMetrics",
    answers: {
      200: {
        description: "The page.",
        schema: { type: "string" },
        types: ["text/plain", "application/openmetrics-text"],
      },
    },
    errors: [],
  },
  jobSubmit: {
    summary: "Takes a call to be done later",
    query: [WAIT],
    headers: [
      {
        name: "Idempotency-Key",
        description: "The same request under it is the same job.",
        schema: { type: "string", pattern: "^[!-~]{1,255}$" },
      },
    ],
    body: body(jobSubmission),
    answers: {
      202: { description: "It is safe.", schema: jobView, headers: { Location: "Where the job is." } },
      ...({
        200: {
          description: "With `wait`: the result, as the call would have been answered.",
          schema: {},
          types: ["*/*"],
        },
      } as const),
    },
    errors: [
      ...CALL_ERRORS,
      "CALLBACK_FORBIDDEN",
      "UPSTREAM_UNKNOWN",
      "ENGINE_ERROR",
      "JOB_DEADLINE",
      "JOB_CANCELLED",
      ...JOB_STORE,
    ],
  },
  jobList: {
    summary: "The key's jobs, newest first; for operators, all",
    query: [
      { name: "state", description: "Only of this state.", schema: { enum: [...JOB_STATES] } },
      whole("limit", "At most so many. Absent: 20.", 1, 100),
      {
        name: "cursor",
        description: "`next_cursor` of the page before.",
        schema: { type: "string", pattern: "^[0-9]{1,15}$" },
      },
    ],
    answers: ok(
      "A page.",
      z.object({ object: z.literal("list"), data: z.array(jobView), next_cursor: z.string().nullable() }),
    ),
    errors: JOB_STORE,
  },
  jobGet: { summary: "A job", rest: JOB, query: [WAIT], answers: ok("It.", jobView), errors: JOB_ERRORS },
  jobResult: {
    summary: "What a job came to",
    rest: JOB,
    answers: {
      200: { description: "The engine's bytes, with its content type.", schema: {}, types: ["*/*"] },
      default: ENGINES_OWN,
    },
    errors: [...JOB_ERRORS, "JOB_NOT_DONE", "JOB_CANCELLED"],
  },
  jobEvents: {
    summary: "A job's changes, as server-sent events",
    rest: JOB,
    answers: { 200: { description: "The stream.", schema: { type: "string" }, types: ["text/event-stream"] } },
    errors: JOB_ERRORS,
  },
  jobCancel: {
    summary: "Ends a job",
    rest: JOB,
    answers: ok("It.", jobView),
    errors: [...JOB_ERRORS, "AUDIT_UNAVAILABLE"],
  },
  documentSubmit,
  documentResult,
  auditQuery: {
    summary: "The newest events of the audit that match, oldest first",
    query: [
      moment("since"),
      moment("until"),
      words("key_id", "Only of this key."),
      words("model", "Only of this model."),
      words("upstream", "Only of this upstream."),
      words("outcome", "Only with this outcome."),
      words("request_id", "Only this request."),
      whole("after_seq", "Only later ones.", 0, Number.MAX_SAFE_INTEGER),
      whole("limit", "At most so many. Absent: 100.", 1, AUDIT_LIMIT_MAX),
    ],
    answers: ok("They.", AUDIT_PAGE),
    errors: ["AUDIT_UNAVAILABLE"],
  },
  auditChain: chainOperation("The signed lines of what administrators did and of what was decided about money"),
  usage: USAGE_OPERATION,
  keysList: {
    summary: "The keys that are let in",
    answers: ok("They; never the keys themselves.", keyList),
    errors: [],
  },
  keysNew: {
    summary: "Makes a key",
    body: body(newKeyAsk),
    answers: { 201: { description: "The only answer that holds it.", schema: issuedKey } },
    errors: ["KEY_EXISTS", "AUDIT_UNAVAILABLE"],
  },
  keyRevoke: {
    summary: "Ends a key",
    rest: { id: pathText("Id of the key.", ID_IN_PATH) },
    answers: ok("Done.", revokedKey),
    errors: ["KEY_UNKNOWN", "KEY_IN_FILE", "AUDIT_UNAVAILABLE"],
  },
  keyRotate: {
    summary: "Replaces a key",
    rest: { id: pathText("Id of the key.", ID_IN_PATH) },
    body: body(rotateKeyRequest, false),
    answers: ok("The only answer that holds the new one.", issuedKey),
    errors: ["KEY_UNKNOWN", "KEY_IN_FILE", "KEY_EXISTS", "AUDIT_UNAVAILABLE"],
  },
  gpus: { summary: "The cards that are watched", answers: ok("They.", gpuHealthView), errors: ["GPU_UNKNOWN"] },
  gpuClear: {
    summary: "Ends a card's faults",
    body: {
      required: true,
      content: {
        [JSON_TYPE]: {
          type: "object",
          required: ["gpu"],
          additionalProperties: false,
          properties: {
            gpu: {
              type: "string",
              pattern: "^[A-Za-z0-9][A-Za-z0-9-]{0,60}/[0-9]{1,3}$",
              description: "`host/index`, or a UUID.",
            },
          },
        },
      },
    },
    answers: ok("Done.", gpuClearView),
    errors: ["GPU_UNKNOWN", "AUDIT_UNAVAILABLE"],
  },
  ...OVERFLOW_OPERATIONS,
};

export const renderGatewayApi = (version: string): string =>
  renderDocument<Route>({
    title: "Yardmaster gateway",
    description:
      "The gateway's own routes, and those that pass to engines, whose bodies are the engines' own. Not here, since no path can say it: any other path below `/v1/` whose body names a `model`, and `/upstreams/{id}/…`, which pass through as they are. HEAD is answered as GET, without the body.",
    version,
    routes: ROUTES,
    operationOf: (route, method) => {
      const entry = OPERATIONS[route.handler];
      return typeof entry === "function" ? entry(route, method) : entry;
    },
    commonErrors: [
      "BAD_REQUEST",
      "METHOD_NOT_ALLOWED",
      "URI_TOO_LONG",
      "HEADERS_TOO_LARGE",
      "ROUTE_UNKNOWN",
      "RATE_LIMITED",
      "KEY_STORE_UNAVAILABLE",
      "EXPECTATION_FAILED",
      "INTERNAL",
    ],
    bodyErrors: ["BAD_JSON", "REQUEST_TIMEOUT", "BODY_TOO_LARGE"],
    keyHeader: "authorization",
  });
