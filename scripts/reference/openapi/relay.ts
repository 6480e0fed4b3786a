import { z } from "zod";
import { tryBody } from "../../../src/contract/board-schema.ts";
import { JOB_STATES } from "../../../src/contract/job.ts";
import { jobView } from "../../../src/contract/job-view.ts";
import { queuesView } from "../../../src/contract/queues.ts";
import type { RelayHandler } from "../../../src/control/api/routes.ts";
import type { ErrorCode } from "../../../src/kernel/errors.ts";
import { type AnswerDoc, type OperationDoc, pathText } from "./document.ts";
import { USAGE_OPERATION } from "./gateway.ts";
import { OVERFLOW_OPERATIONS } from "./overflow.ts";

// What a control plane asks its gateways for, whose own routes answer.

const ok = (description: string, schema: z.ZodType): { readonly 200: AnswerDoc } => ({ 200: { description, schema } });
const JOB = { job: pathText("Id of a job.", "[A-Za-z0-9_-]{1,100}") };
const ASKED: readonly ErrorCode[] = ["GATEWAY_SILENT"];
const JOBS: readonly ErrorCode[] = ["JOB_STORE_UNAVAILABLE", ...ASKED];
const ONE_JOB: readonly ErrorCode[] = ["JOB_UNKNOWN", "JOB_IN_OTHER_STORE", "STORE_LOST", ...JOBS];

const asked = (operation: OperationDoc): OperationDoc => ({ ...operation, errors: [...operation.errors, ...ASKED] });

export const RELAY_OPERATIONS: Readonly<Record<RelayHandler, OperationDoc>> = {
  queues: {
    summary: "The upstreams of all gateways: slots in use, who waits, and how long it took",
    answers: ok("They.", queuesView),
    errors: ASKED,
  },
  jobs: {
    summary: "The jobs of all gateways, newest first",
    query: [
      { name: "state", description: "Only of this state.", schema: { enum: [...JOB_STATES] } },
      {
        name: "limit",
        description: "At most so many. Absent: 20.",
        schema: { type: "integer", minimum: 1, maximum: 100 },
      },
      {
        name: "gateway",
        description: "Id or name of one gateway.",
        schema: { type: "string", minLength: 1, maxLength: 128 },
      },
      {
        name: "cursor",
        description: "`next_cursor` of the page before, of the gateway that is named.",
        schema: { type: "string", pattern: "^[0-9]{1,15}$" },
      },
    ],
    answers: ok(
      "A page.",
      z.object({ data: z.array(jobView), next_cursor: z.string().nullable(), gateway: z.string().nullable() }),
    ),
    errors: JOBS,
  },
  job: { summary: "A job", rest: JOB, answers: ok("It.", jobView), errors: ONE_JOB },
  jobCancel: {
    summary: "Ends a job",
    rest: JOB,
    answers: ok("It.", jobView),
    errors: ["AUDIT_UNAVAILABLE", ...ONE_JOB],
  },
  overflowShow: asked(OVERFLOW_OPERATIONS.overflowShow),
  overflowApprove: asked(OVERFLOW_OPERATIONS.overflowApprove),
  overflowRevoke: asked(OVERFLOW_OPERATIONS.overflowRevoke),
  overflowStop: asked(OVERFLOW_OPERATIONS.overflowStop),
  overflowGo: asked(OVERFLOW_OPERATIONS.overflowGo),
  overflowResume: asked(OVERFLOW_OPERATIONS.overflowResume),
  usage: asked(USAGE_OPERATION),
  try: {
    summary: "One request to a model, told piece by piece with its times",
    body: { required: true, content: { "application/json": tryBody } },
    answers: {
      200: {
        description: "A line of JSON for each piece; the last one is its end, or why it failed.",
        schema: { type: "string" },
        types: ["application/x-ndjson"],
      },
    },
    errors: ASKED,
  },
};
