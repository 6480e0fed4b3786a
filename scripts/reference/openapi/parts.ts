import type { z } from "zod";
import { CHAIN_PAGE_LINES_MAX } from "../../../src/contract/audit-chain.ts";
import type { AnswerDoc, BodyDoc, JsonSchema, OperationDoc, QueryDoc } from "./document.ts";

export const JSON_TYPE = "application/json";

export const ok = (description: string, schema: z.ZodType | JsonSchema): { readonly 200: AnswerDoc } => ({
  200: { description, schema },
});

export const text = (description: string): { readonly 200: AnswerDoc } => ({
  200: { description, schema: { type: "string" }, types: ["text/plain"] },
});

export const body = (schema: z.ZodType, required = true): BodyDoc => ({
  required,
  content: { [JSON_TYPE]: schema },
});

export const whole = (name: string, description: string, minimum: number, maximum: number): QueryDoc => ({
  name,
  description,
  schema: { type: "integer", minimum, maximum },
});

/** A page of the signed chain, as gateways and control planes give it out. */
export const chainOperation = (summary: string): OperationDoc => ({
  summary,
  query: [
    whole("after_seq", "Only later ones.", 0, 999_999_999_999_999),
    whole("limit", `Lines at most. Absent: ${CHAIN_PAGE_LINES_MAX}.`, 1, CHAIN_PAGE_LINES_MAX),
    whole("first", "The first number of a reading that goes on from a page before.", 0, 999_999_999_999_999),
  ],
  answers: ok("A page.", {
    type: "object",
    required: ["lines", "last", "seal"],
    properties: {
      lines: { type: "array", items: { type: "string" } },
      last: { type: ["integer", "null"] },
      seal: { type: ["string", "null"] },
    },
  }),
  errors: ["AUDIT_UNAVAILABLE"],
});
