import type { z } from "zod";
import type { AnswerDoc, BodyDoc, JsonSchema, QueryDoc } from "./document.ts";

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
