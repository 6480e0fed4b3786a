import type { JobRecord } from "../../contract/job.ts";

/**
 * Whether an engine that goes on when its caller is gone (ComfyUI) may still be at work on the job. Then no tier gets it: the card may be busy
 * with this very job, and it would be done, and paid for, beside itself. An attempt that came to its own end has left nothing but where
 * its time ran out.
 */
export function mayBeAtWork({ plan }: Pick<JobRecord, "plan">): boolean {
  const last = plan.findLast(({ what }) => what === "reclaimed" || what === "handed_back" || what === "retried");
  return last !== undefined && (last.what !== "retried" || last.why.startsWith("UPSTREAM_TIMEOUT:"));
}
