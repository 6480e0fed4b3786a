import type { CatalogSettings, CatalogStanding } from "../../contract/gateway-config.ts";

/** Whether a request for a model may wait for its start (statement L1). */
export type StartVerdict =
  /** Something of it runs, or it is no catalog's. */
  { readonly kind: "serves" } | { readonly kind: "waits" } | { readonly kind: "refused"; readonly why: string };

/** `serving`: endpoints that take new work, whether they can be reached now or not. */
export function judgeStart(catalog: CatalogSettings | null, serving: number): StartVerdict {
  if (catalog === null || serving > 0) return { kind: "serves" };
  const { standing, model } = catalog;
  if (standing === null) return { kind: "refused", why: `no control plane has told of the model ${model} yet` };
  const { settled, startable, why } = standing;
  if (startable && settled !== "parked" && settled !== "unplaced") return { kind: "waits" };
  return { kind: "refused", why: why ?? `the model ${model} can't be started` };
}

/** What those who wait for a start are to be told at once; null: nothing. */
export function startNews(
  before: CatalogStanding | null,
  after: CatalogStanding | null,
  verdict: StartVerdict,
): string | null {
  if (verdict.kind === "refused") return verdict.why;
  if (verdict.kind === "serves" || before === null || after === null) return null;
  return after.failedStarts > before.failedStarts
    ? `a start of the model failed: ${after.why ?? "no reason is known"}`
    : null;
}
