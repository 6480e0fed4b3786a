import type { MetricDefinition } from "./metric-definition.ts";
import { METRICS } from "./metric-names.ts";

/** Models, nodes and fabrics that a page names at most; the first by name. */
export const METRIC_NAMES_MAX = 1_000;

/** Every metric of the control plane. What a standby does not know, or a leader before its first pass, is absent. */
export const CONTROL_METRICS = {
  leading: {
    name: "yardmaster_control_leading",
    type: "gauge",
    labels: [],
    help: "1 while this control plane leads, else 0. Over all of a cluster the sum is 1.",
  },
  epoch: {
    name: "yardmaster_control_epoch",
    type: "gauge",
    labels: [],
    help: "Epoch of the running term. Absent on a standby.",
  },
  storeSilent: {
    name: "yardmaster_control_store_silent_seconds",
    type: "gauge",
    labels: [],
    help: "For how long the store has not answered; 0 while it does.",
  },
  restored: {
    name: "yardmaster_control_restored",
    type: "gauge",
    labels: [],
    help: "1 while the store is an old copy and nothing is stopped until an operator confirms, else 0. Absent on a standby.",
  },
  agents: {
    name: "yardmaster_agents_connected",
    type: "gauge",
    labels: [],
    help: "Agents that are connected to this control plane, leading or not.",
  },
  agentsWaiting: {
    name: "yardmaster_agents_waiting",
    type: "gauge",
    labels: [],
    help: "Agents that wait for their turn to connect.",
  },
  gateways: {
    name: "yardmaster_gateways_connected",
    type: "gauge",
    labels: [],
    help: "Gateways that are connected to this control plane.",
  },
  nodes: {
    name: "yardmaster_nodes",
    type: "gauge",
    labels: ["state"],
    help: "Nodes of the cluster: ready, unreachable, lost, never_seen. Absent on a standby.",
  },
  weights: {
    name: "yardmaster_weights_bytes",
    type: "gauge",
    labels: ["use"],
    help: "Bytes of weights in the caches of nodes that are heard: in_use by an engine, idle, or partial (downloads that have not ended). Foreign files are not counted. Absent on a standby.",
  },
  nodeWeights: {
    name: "yardmaster_node_weights_bytes",
    type: "gauge",
    labels: ["node"],
    help: "Bytes of weights that the cache of a node holds, parts of downloads included. Absent for nodes that are not heard, and on a standby.",
  },
  agentLag: {
    name: "yardmaster_agent_lag_seconds",
    type: "gauge",
    labels: ["node"],
    help: "For how long the agent of a node has not been heard. Absent for nodes that never were, and on a standby.",
  },
  fabricFree: {
    name: "yardmaster_fabric_free_nodes",
    type: "gauge",
    labels: ["fabric"],
    help: "Whole nodes with GPUs that are free, by fabric; `none` for nodes of no fabric. Nodes of which that is not known are not counted. Absent on a standby.",
  },
  gpuMemoryUsed: {
    name: "yardmaster_gpu_memory_used_bytes",
    type: "gauge",
    labels: ["class"],
    help: "Memory in use, by whatever process, on cards of nodes that are heard and whose use was read. Absent where none was, and on a standby.",
  },
  gpuMemory: {
    name: "yardmaster_gpu_memory_bytes",
    type: "gauge",
    labels: ["class"],
    help: "Memory of the cards that yardmaster_gpu_memory_used_bytes speaks of. Absent on a standby.",
  },
  gpuUtilization: {
    name: "yardmaster_gpu_utilization_ratio",
    type: "gauge",
    labels: ["class"],
    help: "Mean utilisation of the cards of nodes that are heard, 0 to 1, of those whose utilisation was read. Absent where none was, and on a standby.",
  },
  nodesCordoned: {
    name: "yardmaster_nodes_cordoned",
    type: "gauge",
    labels: [],
    help: "Nodes that take nothing new. Absent on a standby.",
  },
  gpus: {
    name: "yardmaster_gpus",
    type: "gauge",
    labels: ["class", "state"],
    help: "Cards by class: used, free, sick, and unknown for those of nodes that are not heard. Absent on a standby.",
  },
  replicas: {
    name: "yardmaster_replicas",
    type: "gauge",
    labels: ["state"],
    help: "Replicas by state. Absent on a standby.",
  },
  modelReplicas: {
    name: "yardmaster_model_replicas",
    type: "gauge",
    labels: ["model", "state"],
    help: "Replicas by model and state; a state without any is absent. Absent on a standby.",
  },
  modelIdle: {
    name: "yardmaster_model_idle_seconds",
    type: "gauge",
    labels: ["model"],
    help: "For how long a model with ready replicas has had no request, by what every gateway says. Absent where that is not known.",
  },
  leftOut: {
    name: "yardmaster_metrics_left_out",
    type: "gauge",
    labels: ["kind"],
    help: "Models, nodes and fabrics beyond the first thousand, which this page does not name. Absent on a standby.",
  },
  models: {
    name: "yardmaster_models",
    type: "gauge",
    labels: ["state"],
    help: "Models by state: ready, starting, waiting, parked, stopped, removed. Absent on a standby.",
  },
  catalogRevision: {
    name: "yardmaster_catalog_revision",
    type: "gauge",
    labels: [],
    help: "Revision of the catalog in force here; 0 before the first.",
  },
  unplaced: {
    name: "yardmaster_placement_failures",
    type: "gauge",
    labels: ["reason"],
    help: "Models without room, by each first reason that kept a node out; `noNode` where there is none. Absent on a standby.",
  },
  restarts: {
    name: "yardmaster_restarts",
    type: "gauge",
    labels: ["state"],
    help: "Replicas that are to be replaced: queued, replacing, inPlace, refused. Absent on a standby.",
  },
  idleSeconds: {
    name: "yardmaster_replica_idle_seconds_max",
    type: "gauge",
    labels: [],
    help: "The longest time for which a ready replica has had no request, by what every gateway says. Absent when none is known.",
  },
  fleetEvents: {
    name: "yardmaster_fleet_events_total",
    type: "counter",
    labels: ["kind"],
    help: "What happened in the fleet while this control plane led, by the kind that `ctl events` shows.",
  },
  passes: {
    name: "yardmaster_passes_total",
    type: "counter",
    labels: ["outcome"],
    help: "Passes that were finished: changed (documents were written) or unchanged.",
  },
  passSeconds: {
    name: "yardmaster_pass_seconds",
    type: "histogram",
    labels: [],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
    help: "What a pass costs, without waiting for the store.",
  },
  traceExported: METRICS.traceExported,
  traceDropped: METRICS.traceDropped,
  eventLoopDelay: METRICS.eventLoopDelay,
  processRss: METRICS.processRss,
  processHeap: METRICS.processHeap,
  processCpu: METRICS.processCpu,
  uptime: METRICS.uptime,
} as const satisfies Record<string, MetricDefinition>;
