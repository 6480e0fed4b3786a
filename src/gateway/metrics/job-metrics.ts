import type { JobRecord, JobState } from "../../contract/job.ts";
import type { MetricDefinition } from "../../contract/metric-definition.ts";
import { METRICS } from "../../contract/metric-names.ts";
import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";
import type { JobCounts } from "../../coord/jobs/job-store.ts";
import type { CallVerdict } from "../../decide/jobs/judge-run.ts";
import type { CounterFamily, GaugeFamily, Registry } from "../../metrics/registry.ts";

export interface JobMetrics {
  submitted(requestClass: RequestClass, replayed: boolean): void;
  ended(requestClass: RequestClass, state: JobState): void;
  /** A claim ran out and the job was taken from whoever had it. */
  reclaimed(job: JobRecord): void;
  /** This gateway worked on a job that was not, or no longer, its own. */
  claimLost(why: "stale" | "ended" | "unknown"): void;
  verdict(verdict: CallVerdict): void;
  callback(outcome: "delivered" | "failed" | "forbidden"): void;
  storeLost(): void;
  /** The store lacks so many at most that it had accepted. */
  jobsLost(jobs: number): void;
  /** Read at each scrape; undefined: unknown at the moment. */
  collect(counts: () => JobCounts | undefined): void;
}

export function createJobMetrics(registry: Registry): JobMetrics {
  const counter = ({ name, help, labels }: MetricDefinition): CounterFamily => registry.counter(name, help, labels);
  const gauge = ({ name, help, labels }: MetricDefinition): GaugeFamily => registry.gauge(name, help, labels);
  const submitted = counter(METRICS.jobsSubmitted);
  const ended = counter(METRICS.jobsEnded);
  const reclaims = counter(METRICS.jobReclaims);
  const lost = counter(METRICS.jobClaimsLost);
  const calls = counter(METRICS.jobCalls);
  const callbacks = counter(METRICS.jobCallbacks);
  const storeLost = counter(METRICS.jobStoreLost).labels();
  const jobsLost = counter(METRICS.jobsLost).labels();
  const open = gauge(METRICS.jobsOpen);
  const kept = gauge(METRICS.jobsKept);
  const bytes = gauge(METRICS.jobsBytes);
  const waiting = gauge(METRICS.jobCallbacksWaiting);
  return {
    submitted: (requestClass, replayed) => submitted.labels(requestClass, replayed ? "replayed" : "accepted").inc(),
    ended: (requestClass, state) => ended.labels(requestClass, state).inc(),
    reclaimed: (job) => reclaims.labels(job.class).inc(),
    claimLost: (why) => lost.labels(why).inc(),
    verdict: (verdict) => calls.labels(verdict.kind, verdict.kind === "done" ? "" : verdict.error.code).inc(),
    callback: (outcome) => callbacks.labels(outcome).inc(),
    storeLost: () => storeLost.inc(),
    jobsLost: (jobs) => jobsLost.inc(jobs),
    collect(counts) {
      open.collectWith((set) => {
        for (const requestClass of REQUEST_CLASSES) {
          set(["queued", requestClass], counts()?.queued[requestClass]);
          set(["running", requestClass], counts()?.running[requestClass]);
        }
      });
      kept.collectWith((set) => set([], counts()?.kept));
      bytes.collectWith((set) => set([], counts()?.bytes));
      waiting.collectWith((set) => set([], counts()?.callbacks));
    },
  };
}
