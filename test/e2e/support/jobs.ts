import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { JobView } from "../../../src/contract/job-view.ts";
import type { JobState } from "../../../src/contract/job.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { call, type CallAnswer, type CallOptions } from "./calls.ts";
import type { TestGateway } from "./test-gateway.ts";

type Asked = Pick<TestGateway, "port" | "keys">;

/** A chat for the simulated engine that answers in one piece. */
export const aChat = (sim: Readonly<Record<string, unknown>> = {}, tag = "job"): Readonly<Record<string, unknown>> => ({
  model: "m",
  messages: [{ role: "user", content: "hi" }],
  metadata: { class: tag },
  sim: { tokens: 2, ...sim },
});

export const submit = (
  gateway: Asked,
  job: Readonly<Record<string, unknown>>,
  options: Omit<CallOptions, "body"> & { readonly query?: string } = {},
): Promise<CallAnswer> =>
  call(gateway, { ...options, path: `/v1/jobs${options.query ?? ""}`, body: { class: "batch", ...job } });

/** Submits and expects it to be taken. */
export async function accepted(
  gateway: Asked,
  job: Readonly<Record<string, unknown>>,
  options: Omit<CallOptions, "body"> = {},
): Promise<JobView> {
  const answer = await submit(gateway, job, options);
  if (answer.status !== 202) throw new Error(`${answer.status}: ${answer.text}`);
  return JSON.parse(answer.text) as JobView;
}

export const ask = (gateway: Asked, path: string, options: CallOptions = {}): Promise<CallAnswer> =>
  call(gateway, { method: "GET", ...options, path: `/v1/jobs${path}` });

export async function jobOf(gateway: Asked, id: string, query = "", key?: string): Promise<JobView> {
  const answer = await ask(gateway, `/${id}${query}`, key === undefined ? {} : { key });
  if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`);
  return JSON.parse(answer.text) as JobView;
}

/** The job once it has ended, by long polls. */
export async function ended(gateway: Asked, id: string, msMax = 60_000): Promise<JobView> {
  const open: readonly JobState[] = ["queued", "running"];
  for (let waited = 0; ; waited += 10_000) {
    // The store may be away for a moment, and says so.
    const answer = await eventually(
      `an answer about ${id}`,
      () => ask(gateway, `/${id}?wait=10`),
      ({ status }) => status !== 503,
    );
    if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`);
    const job = JSON.parse(answer.text) as JobView;
    if (!open.includes(job.state)) return job;
    if (waited > msMax) throw new Error(`the job is ${job.state}: ${JSON.stringify(job.plan)}`);
  }
}

/** A folder that outlives a gateway. */
export async function aDataDir(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), "yardmaster-jobs-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}
