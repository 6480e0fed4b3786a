import { GPU_METRICS } from "./gpu-metric-names.ts";
import { BATCH_METRICS } from "./batch-metric-names.ts";
import { KEY_METRICS } from "./key-metric-names.ts";
import type { MetricDefinition } from "./metric-definition.ts";
import { OVERFLOW_METRICS } from "./overflow-metric-names.ts";
import { REPLY_METRICS } from "./reply-metric-names.ts";

const SHORT_S = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120];
const LONG_S = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800];
const GAP_S = [0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 1, 5];

/**
 * Every metric of the gateway: the registry is built from this table and docs/reference/metrics.md is written from it.
 * Labels are configured ids and closed sets only. Nothing that a client sends (model names, keys, paths, ids) is ever a
 * label, so a page can't grow with its clients; names of cards come from exporters and are bounded in number. Base units: seconds and bytes. A gauge whose value nobody knows is absent.
 */
export const METRICS = {
  requests: {
    name: "yardmaster_requests_total",
    type: "counter",
    labels: ["route", "upstream", "class", "outcome"],
    help: "Requests that have ended. Upstream and class are empty for requests that ended before either was known.",
  },
  requestDuration: {
    name: "yardmaster_request_duration_seconds",
    type: "histogram",
    labels: ["upstream", "class"],
    buckets: LONG_S,
    help: "From a request's arrival to its end, for requests that reached an upstream's queue.",
  },
  queue: {
    name: "yardmaster_queue_seconds",
    type: "histogram",
    labels: ["upstream", "class"],
    buckets: SHORT_S,
    help: "Time an admitted request waited for a slot; 0 when one was free.",
  },
  firstByte: {
    name: "yardmaster_first_byte_seconds",
    type: "histogram",
    labels: ["upstream", "class"],
    buckets: LONG_S,
    help: "From dispatch to the first event of a stream, or the first byte of another answer.",
  },
  tokenGap: {
    name: "yardmaster_token_gap_seconds",
    type: "histogram",
    labels: ["upstream", "class"],
    buckets: GAP_S,
    help: "Time between two events of a stream.",
  },
  inFlight: {
    name: "yardmaster_in_flight",
    type: "gauge",
    labels: ["upstream", "class"],
    help: "Slots held by running requests.",
  },
  lingering: {
    name: "yardmaster_lingering",
    type: "gauge",
    labels: ["upstream"],
    help: "Slots held for engines that may still work for a client that has gone.",
  },
  waiting: {
    name: "yardmaster_waiting",
    type: "gauge",
    labels: ["upstream", "class"],
    help: "Requests waiting for a slot.",
  },
  waitingBytes: {
    name: "yardmaster_waiting_bytes",
    type: "gauge",
    labels: ["upstream"],
    help: "Bytes of the bodies of waiting requests.",
  },
  slots: {
    name: "yardmaster_slots",
    type: "gauge",
    labels: ["upstream"],
    help: "Slots of the upstream: requests in flight at most.",
  },
  batchMax: {
    name: "yardmaster_batch_max",
    type: "gauge",
    labels: ["upstream"],
    help: "Slots that class batch may hold.",
  },
  refusals: {
    name: "yardmaster_refusals_total",
    type: "counter",
    labels: ["upstream", "code"],
    help: "Requests that the gateway itself answered with an error, by the error's code.",
  },
  retries: {
    name: "yardmaster_retries_total",
    type: "counter",
    labels: ["upstream", "why"],
    help: "Further tries on another endpoint, by what went wrong with the one before.",
  },
  retryBudgetExhausted: {
    name: "yardmaster_retry_budget_exhausted_total",
    type: "counter",
    labels: ["upstream"],
    help: "Retries not made because the retry budget was spent.",
  },
  endpointState: {
    name: "yardmaster_endpoint_state",
    type: "gauge",
    labels: ["upstream", "endpoint", "state"],
    help: "1 for the state that the endpoint is in, 0 for the others.",
  },
  endpointInFlight: {
    name: "yardmaster_endpoint_in_flight",
    type: "gauge",
    labels: ["upstream", "endpoint"],
    help: "Requests of this gateway running on the endpoint.",
  },
  endpointFailures: {
    name: "yardmaster_endpoint_failures_total",
    type: "counter",
    labels: ["upstream", "endpoint", "kind"],
    help: "Tries on the endpoint that failed, by the kind of failure.",
  },
  breakerTransitions: {
    name: "yardmaster_breaker_transitions_total",
    type: "counter",
    labels: ["upstream", "endpoint", "to"],
    help: "Changes of the endpoint's breaker, by the state it went to.",
  },
  engineRunning: {
    name: "yardmaster_engine_running",
    type: "gauge",
    labels: ["upstream", "endpoint"],
    help: "Requests the engine says it runs. Absent when the engine does not tell or its report is stale.",
  },
  engineWaiting: {
    name: "yardmaster_engine_waiting",
    type: "gauge",
    labels: ["upstream", "endpoint"],
    help: "Requests in the engine's own queue. Absent when unknown.",
  },
  engineKvCache: {
    name: "yardmaster_engine_kv_cache_use_ratio",
    type: "gauge",
    labels: ["upstream", "endpoint"],
    help: "Part of the engine's KV cache in use, 0 to 1. Absent when unknown.",
  },
  engineMemory: {
    name: "yardmaster_engine_memory_use_ratio",
    type: "gauge",
    labels: ["upstream", "endpoint"],
    help: "Part of the card's memory in use as the engine says, 0 to 1 (ComfyUI). Absent when unknown.",
  },
  tokens: {
    name: "yardmaster_tokens_total",
    type: "counter",
    labels: ["upstream", "kind"],
    help: "Tokens as the engines counted them: prompt, completion, and cached (the part of prompt that came from a prefix cache).",
  },
  usageUnknown: {
    name: "yardmaster_usage_unknown_total",
    type: "counter",
    labels: ["upstream"],
    help: "Answers of routes that use tokens whose usage the engine did not tell.",
  },
  bytes: {
    name: "yardmaster_bytes_total",
    type: "counter",
    labels: ["direction"],
    help: "Bytes of bodies: in from clients, out to clients.",
  },
  clientAborts: {
    name: "yardmaster_client_aborts_total",
    type: "counter",
    labels: ["upstream", "stage"],
    help: "Clients that went away before their answer had ended, by how far it had come.",
  },
  clientStalls: {
    name: "yardmaster_client_stalls_total",
    type: "counter",
    labels: ["upstream"],
    help: "Clients cut off because they took nothing for write_stall_s while bytes waited for them.",
  },
  streamErrors: {
    name: "yardmaster_stream_errors_total",
    type: "counter",
    labels: ["upstream"],
    help: "Streams that ended with an error event, the engine's or the gateway's own.",
  },
  emptyAnswers: {
    name: "yardmaster_empty_answers_total",
    type: "counter",
    labels: ["upstream"],
    help: "Answers with a good status and nothing in them.",
  },
  idempotency: {
    name: "yardmaster_idempotency_requests_total",
    type: "counter",
    labels: ["result"],
    help: "Requests with an Idempotency-Key: first of their key, replayed, waited for another's answer, told to come again (in_progress), refused (mismatch), or unprotected because the store was away.",
  },
  ...REPLY_METRICS,
  affinityChoices: {
    name: "yardmaster_affinity_choices_total",
    type: "counter",
    labels: ["upstream", "outcome"],
    help: "Endpoints chosen for requests with a prefix or a session to go by: warm, placed by hash, spilled over the bound on load, or by load alone (unheard).",
  },
  authFailures: {
    name: "yardmaster_auth_failures_total",
    type: "counter",
    labels: ["why"],
    help: "Requests refused for their key, by reason.",
  },
  bufferedBytes: {
    name: "yardmaster_buffered_bytes",
    type: "gauge",
    labels: [],
    help: "Bytes of request bodies held in memory; at most max_buffered_bytes.",
  },
  connections: {
    name: "yardmaster_connections",
    type: "gauge",
    labels: ["state"],
    help: "Open connections: client, engine (all towards engines), and engine_idle (those of them that wait for work).",
  },
  eventLoopDelay: {
    name: "yardmaster_event_loop_delay_seconds",
    type: "gauge",
    labels: ["stat"],
    help: "How late the event loop was since the last scrape: p50, p99 and max.",
  },
  processRss: {
    name: "yardmaster_process_resident_memory_bytes",
    type: "gauge",
    labels: [],
    help: "Resident memory of the process.",
  },
  processHeap: {
    name: "yardmaster_process_heap_used_bytes",
    type: "gauge",
    labels: [],
    help: "JavaScript heap in use.",
  },
  processCpu: {
    name: "yardmaster_process_cpu_seconds_total",
    type: "counter",
    labels: ["mode"],
    help: "CPU time used by the process: user and system.",
  },
  jobsSubmitted: {
    name: "yardmaster_jobs_submitted_total",
    type: "counter",
    labels: ["class", "result"],
    help: "Jobs taken by this gateway: accepted, or replayed where an idempotency key named one that was there.",
  },
  jobsEnded: {
    name: "yardmaster_jobs_ended_total",
    type: "counter",
    labels: ["class", "state"],
    help: "Jobs that this gateway brought to their end, by the state that they ended in.",
  },
  jobCalls: {
    name: "yardmaster_job_calls_total",
    type: "counter",
    labels: ["verdict", "code"],
    help: "Calls of jobs (and of their parts) that ended, by what was made of them: done, final, again, or postpone, which costs no attempt.",
  },
  jobReclaims: {
    name: "yardmaster_job_reclaims_total",
    type: "counter",
    labels: ["class"],
    help: "Claims that ran out without being renewed.",
  },
  jobClaimsLost: {
    name: "yardmaster_job_claims_lost_total",
    type: "counter",
    labels: ["why"],
    help: "Jobs that this gateway still worked on when they were not its own any more: taken by another (stale, so the work was done twice), ended meanwhile, or gone from the store (unknown). What it had was refused.",
  },
  jobCallbacks: {
    name: "yardmaster_job_callbacks_total",
    type: "counter",
    labels: ["outcome"],
    help: "Tries to tell of a job's end, by outcome: delivered, failed, or forbidden by the rules for addresses.",
  },
  jobStoreLost: {
    name: "yardmaster_job_store_lost_total",
    type: "counter",
    labels: [],
    help: "Times that this gateway found the store of the jobs emptied.",
  },
  jobsLost: {
    name: "yardmaster_jobs_lost_total",
    type: "counter",
    labels: [],
    help: "Accepted jobs, at most, that a server which took over had not heard of, as this gateway saw it. 0 with `jobs.replicas`.",
  },
  jobsOpen: {
    name: "yardmaster_jobs",
    type: "gauge",
    labels: ["state", "class"],
    help: "Jobs that have not ended, over all gateways that share the store. Absent while the store does not tell.",
  },
  jobsKept: {
    name: "yardmaster_jobs_kept",
    type: "gauge",
    labels: [],
    help: "Jobs in the store, ended ones included; at most jobs.max_jobs.",
  },
  jobsBytes: {
    name: "yardmaster_jobs_bytes",
    type: "gauge",
    labels: [],
    help: "Bytes of requests and results in the store; at most jobs.max_bytes.",
  },
  jobCallbacksWaiting: {
    name: "yardmaster_job_callbacks_waiting",
    type: "gauge",
    labels: [],
    help: "Ended jobs whose callback has still to be delivered.",
  },
  auditRecorded: {
    name: "yardmaster_audit_recorded_total",
    type: "counter",
    labels: [],
    help: "Audit events given to the sink.",
  },
  auditDropped: {
    name: "yardmaster_audit_dropped_total",
    type: "counter",
    labels: [],
    help: "Audit events that were never stored because the sink was full or dead.",
  },
  auditPending: {
    name: "yardmaster_audit_pending",
    type: "gauge",
    labels: [],
    help: "Audit events in memory, not stored yet.",
  },
  traceDropped: {
    name: "yardmaster_trace_spans_dropped_total",
    type: "counter",
    labels: [],
    help: "Trace spans that never reached the collector. Absent without otel.",
  },
  traceExported: {
    name: "yardmaster_trace_spans_exported_total",
    type: "counter",
    labels: [],
    help: "Trace spans that the collector took. Absent without otel.",
  },
  logLost: {
    name: "yardmaster_log_lost_total",
    type: "counter",
    labels: [],
    help: "Log lines not written because the sink did not keep up.",
  },
  configReloads: {
    name: "yardmaster_config_reloads_total",
    type: "counter",
    labels: ["result"],
    help: "Reloads of the configuration, by result: applied or refused.",
  },
  configReloadSuccess: {
    name: "yardmaster_config_last_reload_success",
    type: "gauge",
    labels: [],
    help: "1 when the last reload was applied (or none was tried), 0 when it was refused and the former configuration stays.",
  },
  buildInfo: {
    name: "yardmaster_build_info",
    type: "gauge",
    labels: ["version"],
    help: "Always 1; the label tells the version that runs.",
  },
  uptime: { name: "yardmaster_uptime_seconds", type: "gauge", labels: [], help: "Time since the process was started." },
  draining: {
    name: "yardmaster_draining",
    type: "gauge",
    labels: [],
    help: "1 while the gateway is stopping, else 0.",
  },
  coordinationUp: {
    name: "yardmaster_coordination_up",
    type: "gauge",
    labels: [],
    help: "1 while the Redis of `coordination: redis` is asked, 0 while this gateway goes on without it. Absent under `local`.",
  },
  coordinationSteps: {
    name: "yardmaster_coordination_steps_total",
    type: "counter",
    labels: ["script", "outcome"],
    help: "Steps of coordination: reply, refused by the server, notSent (no connection, or given up on it), unknown (no answer in time).",
  },
  gatewaysSeen: {
    name: "yardmaster_coordination_gateways",
    type: "gauge",
    labels: [],
    help: "Gateways that share, this one included, as last seen. Absent under `local`.",
  },
  slotsElsewhere: {
    name: "yardmaster_slots_elsewhere",
    type: "gauge",
    labels: ["upstream"],
    help: "Slots of the upstream that other gateways hold, as last told. Absent under `local` and while unknown.",
  },
  failedOpen: {
    name: "yardmaster_failed_open",
    type: "gauge",
    labels: ["upstream"],
    help: "1 while this gateway admits by its own share of the slots because the shared store is away, else 0. Absent under `local`.",
  },
  feedConnected: {
    name: "yardmaster_feed_connected",
    type: "gauge",
    labels: ["control"],
    help: "1 while the gateway has a connection to the control plane, else 0. Absent where no control plane is followed.",
  },
  feedEpoch: {
    name: "yardmaster_feed_epoch",
    type: "gauge",
    labels: [],
    help: "Epoch of the leader whose word the gateway goes by.",
  },
  feedVersion: {
    name: "yardmaster_feed_version",
    type: "gauge",
    labels: [],
    help: "Version of what the gateway goes by, within the epoch.",
  },
  feedAge: {
    name: "yardmaster_feed_age_seconds",
    type: "gauge",
    labels: [],
    help: "Time since a leader told the gateway something. Absent until one has: what is served is then from the disk.",
  },
  feedRefused: {
    name: "yardmaster_feed_refused_total",
    type: "counter",
    labels: ["why"],
    help: "Words of control planes that were not taken: of an old epoch, of another holder of the same one, of another cluster.",
  },
  leasesLost: {
    name: "yardmaster_leases_lost_total",
    type: "counter",
    labels: ["upstream"],
    help: "Leases of running requests that had lapsed (this gateway stood still) and for whose slot there was no room any more.",
  },
  storeEmptied: {
    name: "yardmaster_coordination_store_emptied_total",
    type: "counter",
    labels: [],
    help: "Times that the shared store was found emptied.",
  },
  ...GPU_METRICS,
  ...KEY_METRICS,
  ...BATCH_METRICS,
  seriesCollapsed: {
    name: "yardmaster_metric_series_collapsed_total",
    type: "counter",
    labels: ["metric"],
    help: 'Label values that were counted under "other" because the metric had reached its bound of series.',
  },
  collectErrors: {
    name: "yardmaster_metric_collect_errors_total",
    type: "counter",
    labels: ["metric"],
    help: "Scrapes in which a metric could not be read and was left out.",
  },
  ...OVERFLOW_METRICS,
} as const satisfies Record<string, MetricDefinition>;

export type MetricKey = keyof typeof METRICS;
