import type { JobPart, JobRecord } from "../../contract/job.ts";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { JobAnswer } from "./job-service.ts";

/** What a job came to, as an answer. Throws what is to be said where there is none. */
export function answerOf(job: JobRecord, store: JobStore): JobAnswer {
  switch (job.state) {
    case "queued":
    case "running":
      throw new YardmasterError("JOB_NOT_DONE", `the job is ${job.state}`);
    case "cancelled":
      throw new YardmasterError("JOB_CANCELLED", "the job was cancelled");
    case "failed":
      if (job.result === null || job.parts !== null)
        throw new YardmasterError(job.error?.code ?? "INTERNAL", job.error?.message ?? "the job failed");
      return wholeAnswer(job, store);
    case "completed":
      return job.parts === null ? wholeAnswer(job, store) : joinedAnswer(job, store);
    default:
      return job.state satisfies never;
  }
}

function wholeAnswer(job: JobRecord, store: JobStore): JobAnswer {
  const { status = 200, contentType = "application/octet-stream", bytes = 0 } = job.result ?? {};
  return {
    job,
    status,
    contentType,
    bytes,
    async *pieces() {
      const body = await store.readBlob(job.id, "result");
      if (body === undefined && bytes > 0)
        throw new YardmasterError("STORE_LOST", "the job's result is no longer there");
      if (body !== undefined) yield body;
    },
  };
}

/** The parts in order, each read when it is its turn: however large they are together, one is in memory. */
function joinedAnswer(job: JobRecord, store: JobStore): JobAnswer {
  return {
    job,
    status: 200,
    contentType: "application/json",
    bytes: undefined,
    async *pieces() {
      yield Buffer.from(`{"object":"list","job":${JSON.stringify(job.id)},"data":[`);
      let before = "";
      for (const part of await store.parts(job.id)) {
        const bytes = part.result === null ? undefined : await store.readPartBytes(job.id, part.index);
        yield Buffer.concat([Buffer.from(before), joinedPart(part, bytes)]);
        before = ",";
      }
      yield Buffer.from("]}");
    },
  };
}

function joinedPart(part: JobPart, bytes: Buffer | undefined): Buffer {
  const { index, result, error } = part;
  const head = { index, status: result?.status ?? null, content_type: result?.contentType ?? null, error };
  const open = JSON.stringify(head).slice(0, -1);
  if (bytes === undefined) return Buffer.from(`${open},"body":null}`);
  if (isJson(result?.contentType ?? "") && parses(bytes))
    return Buffer.concat([Buffer.from(`${open},"body":`), bytes, Buffer.from("}")]);
  return Buffer.from(`${open},"body_base64":"${bytes.toString("base64")}"}`);
}

const isJson = (contentType: string): boolean => /^application\/(?:[a-z.+-]+\+)?json\b/i.test(contentType);

function parses(bytes: Buffer): boolean {
  try {
    JSON.parse(bytes.toString("utf8"));
    return true;
  } catch {
    return false;
  }
}
