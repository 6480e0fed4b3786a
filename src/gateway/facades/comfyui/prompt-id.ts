import { createHash } from "node:crypto";

export interface JobCallName {
  /** Of the job. */
  readonly jobId: string;
  readonly attempt: number;
  /** ".p3" for a part, else empty. */
  readonly part: string;
}

/** A job's call by its request id; undefined for anything else. */
export function readCallName(requestId: string): JobCallName | undefined {
  const [, jobId, attempt, part = ""] = /^(.+)\.(\d{1,4})(\.p\d+)?$/.exec(requestId) ?? [];
  return jobId === undefined ? undefined : { jobId, attempt: Number(attempt), part };
}

/**
 * The prompt's id for a call of a job, the same at every gateway and after every restart: that is what makes a prompt be found again
 * that was submitted by a process which is no more. A UUID in lower case, as ComfyUI demands. `again`: how often a prompt
 * of this attempt has failed before.
 */
export function promptIdOf({ jobId, attempt, part }: JobCallName, again = 0): string {
  const digest = createHash("sha256").update(`yardmaster prompt ${jobId}.${attempt}${part}#${again}`).digest("hex");
  // Version 8 and the usual variant: an id that its maker defines.
  const variant = ((Number.parseInt(digest.slice(16, 18), 16) & 0x3f) | 0x80).toString(16);
  return `${digest.slice(0, 8)}-${digest.slice(8, 12)}-8${digest.slice(13, 16)}-${variant}${digest.slice(18, 20)}-${digest.slice(20, 32)}`;
}
