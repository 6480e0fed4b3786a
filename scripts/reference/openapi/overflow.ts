import { z } from "zod";
import {
  approvalsView,
  approvalView,
  approveBody,
  overflowStateView,
  settleBody,
  spendView,
  stopBody,
} from "../../../src/contract/overflow-view.ts";
import type { OverflowHandler } from "../../../src/gateway/http/routes.ts";
import type { ErrorCode } from "../../../src/kernel/errors.ts";
import { ID_IN_PATH, type JsonSchema, type OperationDoc, pathText } from "./document.ts";
import { body, ok } from "./parts.ts";

// Work that may go to tiers, and its money.

const JOB = { job: pathText("Id of a job.", "[A-Za-z0-9_-]{1,100}") };
const LEDGER: readonly ErrorCode[] = [
  "OVERFLOW_UNKNOWN",
  "OVERFLOW_LEDGER_UNAVAILABLE",
  "JOB_STORE_UNAVAILABLE",
  "AUDIT_UNAVAILABLE",
];
const SWITCH: JsonSchema = { type: "object", properties: { stopped: { type: ["object", "null"] } } };

export const OVERFLOW_OPERATIONS: Readonly<Record<OverflowHandler, OperationDoc>> = {
  overflowShow: {
    summary: "Why an upstream's work would or would not go elsewhere now",
    rest: { upstream: pathText("Id of an upstream.", ID_IN_PATH) },
    answers: ok("Each signal and tier.", overflowStateView),
    errors: LEDGER,
  },
  overflowSpend: { summary: "What each tier has cost", answers: ok("The accounts.", spendView), errors: LEDGER },
  overflowApprovals: { summary: "The approvals of single jobs", answers: ok("They.", approvalsView), errors: LEDGER },
  overflowApprove: {
    summary: "Approves a job for a tier, up to a price",
    body: body(approveBody),
    answers: { 201: { description: "Approved.", schema: approvalView } },
    errors: ["JOB_UNKNOWN", "JOB_OVER", "APPROVAL_IN_USE", ...LEDGER],
  },
  overflowRevoke: {
    summary: "Takes an approval back",
    rest: { tier: pathText("Id of the tier.", ID_IN_PATH), ...JOB },
    answers: ok("It.", approvalView),
    errors: LEDGER,
  },
  overflowStop: {
    summary: "Nothing more is spent",
    body: body(stopBody, false),
    answers: ok("Stopped.", SWITCH),
    errors: LEDGER,
  },
  overflowGo: { summary: "Takes the stop back", answers: ok("Spending is allowed.", SWITCH), errors: LEDGER },
  overflowResume: {
    summary: "Lets a tier go on that was halted for its price",
    rest: { tier: pathText("Id of the tier.", ID_IN_PATH) },
    answers: ok("Done.", z.object({ tier: z.string(), resumed: z.boolean() })),
    errors: LEDGER,
  },
  overflowSettle: {
    summary: "Says what became of a reservation whose outcome nobody knew",
    rest: { reservation: pathText("Its id.", "[A-Za-z0-9._:-]{1,200}") },
    body: body(settleBody),
    answers: ok("Settled.", z.object({ id: z.string(), charged: z.number().nullable() })),
    errors: LEDGER,
  },
  overflowAccept: {
    summary: "Takes the ledger for the right one after it was emptied",
    answers: ok("Accepted.", z.object({ accepted: z.string() })),
    errors: LEDGER,
  },
};
