import { z } from "zod";
import { currencyCode } from "./config-fields.ts";

const tokenPrice = z.number().min(0).max(1_000_000);

/** What an upstream's tokens cost. */
export const priceSection = z.strictObject({
  input_per_1m: tokenPrice.describe("For a million tokens of prompts."),
  output_per_1m: tokenPrice.describe("For a million tokens of answers."),
  cached_per_1m: tokenPrice
    .optional()
    .describe("For a million tokens of prompts that the engine had in its cache. Absent: `input_per_1m`."),
  currency: currencyCode.default("USD").describe("One for all upstreams of the file."),
});
