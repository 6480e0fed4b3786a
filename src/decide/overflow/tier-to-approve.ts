/** What an approver's word would mend. */
const MENDED: ReadonlySet<string> = new Set([
  "no_job_approval",
  "approval_expired",
  "approval_for_other_content",
  "approval_below_price",
  "approved_by_requester",
]);

/** Where an open job would go if somebody said that it may; null: it waits for nobody's word. */
export function tierToApprove(
  decision: "local" | "held" | "tier",
  lacking: readonly { readonly tier: string; readonly lacks: readonly string[] }[],
): string | null {
  if (decision === "tier") return null;
  return lacking.find(({ lacks }) => lacks.some((lack) => MENDED.has(lack)))?.tier ?? null;
}
