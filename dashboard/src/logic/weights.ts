import type { WeightsAnswer } from "../../../src/contract/control-api.ts";
import { formatBytes, plural } from "./format.ts";

/** What a collection would ask nodes to remove, in numbers. A size that nobody knows makes the sum a least. */
export function unwantedOf(weights: readonly WeightsAnswer[]): { readonly count: number; readonly words: string } {
  const unwanted = weights.filter((each) => each.unwanted);
  const bytes = unwanted.reduce((sum, each) => sum + (each.bytes ?? 0), 0);
  const nodes = new Set(unwanted.map(({ node }) => node)).size;
  const least = unwanted.some((each) => each.bytes === null) ? "at least " : "";
  return {
    count: unwanted.length,
    words: `${plural(unwanted.length, "weight")} of ${least}${formatBytes(bytes)} on ${plural(nodes, "node")}`,
  };
}
