/** What the shipped alerts are shown, in promtool's notation: one value a minute. */
export interface AlertCase {
  readonly alert: string;
  readonly series: Readonly<Record<string, string>>;
  readonly at: string;
  /** The labels of each alert that is told, with its summary. None: silence is what is right. */
  readonly told: readonly { readonly labels: Readonly<Record<string, string>>; readonly summary: string }[];
}

type Series = AlertCase["series"];

/** One case where it is told, once, and one where it is not. */
function pair(
  alert: string,
  severity: "page" | "ticket",
  fires: { readonly series: Series; readonly at: string; readonly labels?: Series; readonly summary: string },
  silent: { readonly series: Series; readonly at?: string },
): AlertCase[] {
  const { series, at, labels = {}, summary } = fires;
  return [
    { alert, series, at, told: [{ labels: { severity, ...labels }, summary }] },
    { alert, series: silent.series, at: silent.at ?? at, told: [] },
  ];
}

/** A series of a gateway, of its own job and instance. */
const gw = (text: string): string => withLabels(text, 'job="yardmaster-gateway",instance="gw-1"');
const cp = (text: string): string => withLabels(text, 'job="yardmaster-control",instance="cp-1"');
const withLabels = (text: string, labels: string): string =>
  text.includes("{") ? text.replace("{", `{${labels},`) : `${text}{${labels}}`;

const GW = { job: "yardmaster-gateway", instance: "gw-1" };
const CP = { job: "yardmaster-control", instance: "cp-1" };
const state = (endpoint: string, name: string): string =>
  gw(`yardmaster_endpoint_state{upstream="u",endpoint="${endpoint}",state="${name}"}`);
const ended = (outcome: string): string => gw(`yardmaster_requests_total{upstream="u",outcome="${outcome}"}`);
const waited = (le: string): string =>
  gw(`yardmaster_queue_seconds_bucket{upstream="u",class="interactive",le="${le}"}`);
const jobs = (name: string): string => gw(`yardmaster_jobs_ended_total{class="batch",state="${name}"}`);
const event = (kind: string): string => cp(`yardmaster_fleet_events_total{kind="${kind}"}`);

const GATEWAY_CASES: readonly AlertCase[] = [
  ...pair(
    "YardmasterGatewayDown",
    "page",
    { series: { [gw("up")]: "1x3 0x10" }, at: "6m", labels: GW, summary: "Gateway gw-1 does not answer" },
    { series: { [cp("up")]: "0x15", [gw("up")]: "1x15" } },
  ),
  ...pair(
    "YardmasterNoEndpoint",
    "page",
    {
      series: {
        [state("a", "in_rotation")]: "1x3 0x10",
        [state("a", "broken")]: "0x3 1x10",
        [state("b", "in_rotation")]: "0x15",
        [state("b", "guarded")]: "1x15",
      },
      at: "8m",
      labels: { upstream: "u" },
      summary: "No endpoint of u may take a request",
    },
    // The last replica of a model that nobody asks for drains.
    { series: { [state("a", "in_rotation")]: "1x3 0x10", [state("a", "draining")]: "0x3 1x10" } },
  ),
  ...pair(
    "YardmasterEndpointOut",
    "ticket",
    {
      series: { [state("a", "stalled")]: "1x20", [state("b", "in_rotation")]: "1x20" },
      at: "15m",
      labels: { upstream: "u", endpoint: "a", state: "stalled" },
      summary: "Endpoint a of u is stalled",
    },
    { series: { [state("a", "stalled")]: "1x5 0x15", [state("a", "in_rotation")]: "0x5 1x15" } },
  ),
  ...pair(
    "YardmasterRequestsFail",
    "page",
    {
      series: { [ended("ok")]: "0+54x20", [ended("upstream_failed")]: "0+6x20" },
      at: "15m",
      labels: { upstream: "u" },
      summary: "10% of the requests to u fail",
    },
    // Two failures of few requests wake nobody, and what clients do is no failure.
    {
      series: {
        [ended("ok")]: "0+1x20",
        [ended("upstream_failed")]: "0 0 0 1 1 1 2x14",
        [ended("client_aborted")]: "0+2x20",
      },
    },
  ),
  ...pair(
    "YardmasterPeopleWait",
    "page",
    {
      series: { [waited("5")]: "0+50x20", [waited("10")]: "0+100x20", [waited("+Inf")]: "0+100x20" },
      at: "15m",
      labels: { upstream: "u" },
      summary: "One in twenty interactive requests to u waits for 9.5s",
    },
    { series: { [waited("0.1")]: "0+100x20", [waited("5")]: "0+100x20", [waited("+Inf")]: "0+100x20" } },
  ),
  ...pair(
    "YardmasterQueueRefuses",
    "ticket",
    {
      series: { [gw('yardmaster_refusals_total{upstream="u",code="QUEUE_FULL"}')]: "0+60x25" },
      at: "20m",
      labels: { upstream: "u" },
      summary: "u refuses 1 requests a second because its queue is full or too slow",
    },
    { series: { [gw('yardmaster_refusals_total{upstream="u",code="RATE_LIMITED"}')]: "0+60x25" } },
  ),
  ...pair(
    "YardmasterRetryBudgetSpent",
    "ticket",
    {
      series: { [gw('yardmaster_retry_budget_exhausted_total{upstream="u"}')]: "0+6x20" },
      at: "15m",
      labels: { upstream: "u" },
      summary: "Failures at u are too many to be tried again",
    },
    { series: { [gw('yardmaster_retry_budget_exhausted_total{upstream="u"}')]: "3x20" } },
  ),
  ...pair(
    "YardmasterEventLoopSlow",
    "ticket",
    {
      series: { [gw('yardmaster_event_loop_delay_seconds{stat="p99"}')]: "0.5x15" },
      at: "10m",
      labels: { ...GW, stat: "p99" },
      summary: "gw-1 is late by 500ms in all that it does",
    },
    {
      series: {
        [gw('yardmaster_event_loop_delay_seconds{stat="p99"}')]: "0.01x15",
        [gw('yardmaster_event_loop_delay_seconds{stat="max"}')]: "2x15",
      },
    },
  ),
  ...pair(
    "YardmasterConfigRefused",
    "ticket",
    {
      series: { [gw("yardmaster_config_last_reload_success")]: "1x3 0x12" },
      at: "12m",
      labels: GW,
      summary: "gw-1 refused its changed configuration and goes on with the former one",
    },
    { series: { [gw("yardmaster_config_last_reload_success")]: "1x3 0x3 1x9" } },
  ),
  ...pair(
    "YardmasterAuditDropped",
    "page",
    {
      series: { [gw("yardmaster_audit_dropped_total")]: "0x3 7x12" },
      at: "6m",
      labels: GW,
      summary: "gw-1 could not store audit events",
    },
    { series: { [gw("yardmaster_audit_dropped_total")]: "7x30" } },
  ),
  ...pair(
    "YardmasterKeyGuessing",
    "ticket",
    {
      series: { [gw('yardmaster_auth_failures_total{why="unknown"}')]: "0+120x20" },
      at: "15m",
      labels: { why: "unknown" },
      summary: "2 requests a second are refused for their key (unknown)",
    },
    { series: { [gw('yardmaster_auth_failures_total{why="unknown"}')]: "0+6x20" } },
  ),
];

const SHARED_CASES: readonly AlertCase[] = [
  ...pair(
    "YardmasterCoordinationDown",
    "page",
    {
      series: { [gw("yardmaster_coordination_up")]: "1x3 0x10" },
      at: "7m",
      labels: GW,
      summary: "gw-1 goes on without Redis, by its own share of the slots",
    },
    { series: { [gw("yardmaster_coordination_up")]: "1x15" } },
  ),
  ...pair(
    "YardmasterStoreEmptied",
    "ticket",
    {
      series: { [gw("yardmaster_coordination_store_emptied_total")]: "0x3 1x12" },
      at: "6m",
      labels: GW,
      summary: "The Redis behind gw-1 was emptied",
    },
    { series: { [gw("yardmaster_coordination_store_emptied_total")]: "1x30" } },
  ),
  ...pair(
    "YardmasterJobsLost",
    "page",
    {
      series: { [gw("yardmaster_job_store_lost_total")]: "0x3 1x12", [gw("yardmaster_jobs_lost_total")]: "0x20" },
      at: "6m",
      labels: GW,
      summary: "Accepted jobs are gone from the store, as gw-1 saw it",
    },
    { series: { [gw("yardmaster_job_store_lost_total")]: "1x30", [gw("yardmaster_jobs_lost_total")]: "0x30" } },
  ),
  ...pair(
    "YardmasterLeasesLost",
    "ticket",
    {
      series: { [gw('yardmaster_leases_lost_total{upstream="u"}')]: "0x3 2x12" },
      at: "6m",
      labels: { ...GW, upstream: "u" },
      summary: "gw-1 stood still for so long that others took its slots of u",
    },
    { series: { [gw('yardmaster_leases_lost_total{upstream="u"}')]: "2x30" } },
  ),
  ...pair(
    "YardmasterLimitsUncounted",
    "ticket",
    {
      series: { [gw("yardmaster_key_counted_away_total")]: "0+60x30" },
      at: "25m",
      labels: GW,
      summary: "gw-1 counts the limits of keys by its own part of them",
    },
    { series: { [gw("yardmaster_key_counted_away_total")]: "0 5x30" } },
  ),
  ...pair(
    "YardmasterJobsFail",
    "ticket",
    {
      series: { [jobs("failed")]: "0+5x60", [jobs("completed")]: "0+5x60" },
      at: "45m",
      summary: "50% of the jobs of the last half hour failed",
    },
    { series: { [jobs("failed")]: "0 1x60", [jobs("completed")]: "0 1x60" } },
  ),
  ...pair(
    "YardmasterJobsStuck",
    "ticket",
    {
      series: { [gw('yardmaster_jobs{state="queued",class="batch"}')]: "12x90", [jobs("completed")]: "5x90" },
      at: "80m",
      labels: { class: "batch" },
      summary: "12 jobs of class batch wait and none has ended for half an hour",
    },
    { series: { [gw('yardmaster_jobs{state="queued",class="batch"}')]: "12x90", [jobs("completed")]: "0+1x90" } },
  ),
  ...pair(
    "YardmasterCallbacksWait",
    "ticket",
    {
      series: { [gw("yardmaster_job_callbacks_waiting")]: "150x30" },
      at: "20m",
      summary: "150 callbacks of ended jobs can't be delivered",
    },
    { series: { [gw("yardmaster_job_callbacks_waiting")]: "150x10 3x20" } },
  ),
  ...pair(
    "YardmasterOverflowSignalBroken",
    "ticket",
    {
      series: { [gw('yardmaster_overflow_signal_broken{upstream="u",place="0",signal="semaphore"}')]: "1x20" },
      at: "15m",
      labels: { upstream: "u", place: "0", signal: "semaphore" },
      summary: "Signal semaphore of u can't be read: nothing overflows by it",
    },
    { series: { [gw('yardmaster_overflow_signal_broken{upstream="u",place="0",signal="semaphore"}')]: "0x20" } },
  ),
];

const card = (metric: string): string => gw(`${metric}{host="h",gpu="0"}`);

const GPU_CASES: readonly AlertCase[] = [
  ...pair(
    "YardmasterGpuFaulted",
    "page",
    {
      series: { [card("yardmaster_gpu_faulted")]: "0x3 1x10" },
      at: "8m",
      labels: { host: "h", gpu: "0" },
      summary: "GPU 0 of h has a fault",
    },
    { series: { [card("yardmaster_gpu_faulted")]: "0x15" } },
  ),
  ...pair(
    "YardmasterGpuSilent",
    "ticket",
    {
      series: { [card("yardmaster_gpu_stale")]: "1x20" },
      at: "15m",
      labels: { host: "h", gpu: "0" },
      summary: "Nothing fresh is told of GPU 0 of h: it is not guarded",
    },
    { series: { [card("yardmaster_gpu_stale")]: "1x5 0x15" } },
  ),
  ...pair(
    "YardmasterGpuUnknown",
    "ticket",
    {
      series: { [gw('yardmaster_gpu_known{gpu="h/7"}')]: "0x20" },
      at: "15m",
      labels: { gpu: "h/7" },
      summary: "No source has told of GPU h/7, which an endpoint names",
    },
    { series: { [gw('yardmaster_gpu_known{gpu="h/7"}')]: "1x20" } },
  ),
  ...pair(
    "YardmasterGpuSourceDown",
    "ticket",
    {
      series: { [gw('yardmaster_gpu_source_state{source="h",state="down"}')]: "1x20" },
      at: "15m",
      labels: { source: "h", state: "down" },
      summary: "The exporter h is down",
    },
    { series: { [gw('yardmaster_gpu_source_state{source="h",state="up"}')]: "1x20" } },
  ),
];

const CONTROL_CASES: readonly AlertCase[] = [
  ...pair(
    "YardmasterControlDown",
    "ticket",
    { series: { [cp("up")]: "1x3 0x10" }, at: "8m", labels: CP, summary: "Control plane cp-1 does not answer" },
    { series: { [cp("up")]: "1x15" } },
  ),
  ...pair(
    "YardmasterNoLeader",
    "page",
    {
      series: { [cp("yardmaster_control_leading")]: "1x3 0x10", 'yardmaster_control_leading{instance="cp-2"}': "0x15" },
      at: "8m",
      summary: "No control plane leads: nothing is placed, started or replaced",
    },
    // It changes hands.
    {
      series: {
        [cp("yardmaster_control_leading")]: "1x3 0x10",
        'yardmaster_control_leading{instance="cp-2"}': "0x3 1x10",
      },
    },
  ),
  ...pair(
    "YardmasterTwoLeaders",
    "page",
    {
      series: { [cp("yardmaster_control_leading")]: "1x15", 'yardmaster_control_leading{instance="cp-2"}': "0x3 1x10" },
      at: "8m",
      summary: "2 control planes say that they lead",
    },
    { series: { [cp("yardmaster_control_leading")]: "1x15", 'yardmaster_control_leading{instance="cp-2"}': "0x15" } },
  ),
  ...pair(
    "YardmasterStoreSilent",
    "page",
    {
      series: { [cp("yardmaster_control_store_silent_seconds")]: "0x3 60x10" },
      at: "8m",
      labels: CP,
      summary: "The control plane's database has not answered cp-1 for 1m 0s",
    },
    { series: { [cp("yardmaster_control_store_silent_seconds")]: "0x3 5x1 0x10" } },
  ),
  ...pair(
    "YardmasterStoreRestored",
    "page",
    {
      series: { [cp("yardmaster_control_restored")]: "1x10" },
      at: "5m",
      labels: CP,
      summary: "The control plane's database is an old copy: nothing is stopped until an operator confirms",
    },
    { series: { [cp("yardmaster_control_restored")]: "0x10" } },
  ),
  ...pair(
    "YardmasterFeedLost",
    "ticket",
    {
      series: {
        [gw('yardmaster_feed_connected{control="a"}')]: "1x3 0x10",
        [gw('yardmaster_feed_connected{control="b"}')]: "0x15",
      },
      at: "8m",
      labels: { instance: "gw-1" },
      summary: "Gateway gw-1 reaches no control plane and serves what it was told last",
    },
    {
      series: {
        [gw('yardmaster_feed_connected{control="a"}')]: "1x3 0x10",
        [gw('yardmaster_feed_connected{control="b"}')]: "1x15",
      },
    },
  ),
  ...pair(
    "YardmasterNodeLost",
    "page",
    {
      series: { [cp('yardmaster_nodes{state="lost"}')]: "2x10", [cp('yardmaster_nodes{state="ready"}')]: "5x10" },
      at: "5m",
      summary: "2 nodes are silent",
    },
    {
      series: { [cp('yardmaster_nodes{state="ready"}')]: "5x10", [cp('yardmaster_nodes{state="never_seen"}')]: "1x10" },
    },
  ),
  ...pair(
    "YardmasterGpuSick",
    "ticket",
    {
      series: { [cp('yardmaster_gpus{class="h200",state="sick"}')]: "1x10" },
      at: "5m",
      labels: { class: "h200" },
      summary: "1 cards of class h200 are sick and take nothing",
    },
    {
      series: {
        [cp('yardmaster_gpus{class="h200",state="unknown"}')]: "8x10",
        [cp('yardmaster_gpus{class="h200",state="sick"}')]: "0x10",
      },
    },
  ),
  ...pair(
    "YardmasterModelParked",
    "page",
    {
      series: { [cp('yardmaster_models{state="parked"}')]: "1x10" },
      at: "5m",
      summary: "1 models failed so often that they are started no more",
    },
    { series: { [cp('yardmaster_models{state="stopped"}')]: "3x10" } },
  ),
  ...pair(
    "YardmasterModelUnplaced",
    "ticket",
    {
      series: { [cp('yardmaster_placement_failures{reason="noMemory"}')]: "2x15" },
      at: "10m",
      labels: { reason: "noMemory" },
      summary: "2 models find no room: noMemory",
    },
    { series: { [cp('yardmaster_placement_failures{reason="noMemory"}')]: "2x3 _x12" } },
  ),
  ...pair(
    "YardmasterReplicasFail",
    "ticket",
    {
      series: { [event("replicaFailed")]: "0+1x30" },
      at: "20m",
      summary: "Replicas failed or vanished 15 times in a quarter of an hour",
    },
    { series: { [event("replicaFailed")]: "0x10 1x20", [event("replicaReady")]: "0+5x30" } },
  ),
  ...pair(
    "YardmasterRestartRefused",
    "ticket",
    {
      series: { [cp('yardmaster_restarts{state="refused"}')]: "1x20" },
      at: "15m",
      summary: "1 replicas are to be replaced and can't be",
    },
    { series: { [cp('yardmaster_restarts{state="replacing"}')]: "4x20" } },
  ),
  ...pair(
    "YardmasterFleetSilent",
    "page",
    {
      series: { [event("fleetSilent")]: "0x3 1x12" },
      at: "6m",
      summary: "So many nodes fell silent at once that the control plane suspects itself and stands still",
    },
    { series: { [event("nodeUnreachable")]: "0x3 1x12" } },
  ),
];

export const ALERT_CASES: readonly AlertCase[] = [...GATEWAY_CASES, ...SHARED_CASES, ...GPU_CASES, ...CONTROL_CASES];
