import type { MetricDefinition } from "./metric-definition.ts";

/** Of cards, and of what is done because of them. Names of hosts and cards come from exporters; their number is bounded. */
export const GPU_METRICS = {
  gpuShed: {
    name: "yardmaster_gpu_shed_total",
    type: "counter",
    labels: ["upstream", "site"],
    help: "Batch work refused because the GPUs were saturated; a job counts when it is refused first. Site: sync, document or job.",
  },
  gpuGuards: {
    name: "yardmaster_gpu_guards_total",
    type: "counter",
    labels: ["upstream", "fault"],
    help: "Endpoints taken out of rotation for a fault of a GPU.",
  },
  gpuDryRun: {
    name: "yardmaster_gpu_dry_run_total",
    type: "counter",
    labels: ["upstream", "what"],
    help: "What `dry_run` kept from happening: `guard` an endpoint taken out, `shed` a request refused.",
  },
  gpuUtilization: {
    name: "yardmaster_gpu_utilization",
    type: "gauge",
    labels: ["host", "gpu"],
    help: "Utilisation of the GPU, 0 to 1. Absent where it is not told or old.",
  },
  gpuMemoryUsed: {
    name: "yardmaster_gpu_memory_used_bytes",
    type: "gauge",
    labels: ["host", "gpu"],
    help: "Memory in use.",
  },
  gpuMemoryFree: {
    name: "yardmaster_gpu_memory_free_bytes",
    type: "gauge",
    labels: ["host", "gpu"],
    help: "Memory that is free.",
  },
  gpuTemperature: {
    name: "yardmaster_gpu_temperature_celsius",
    type: "gauge",
    labels: ["host", "gpu"],
    help: "Temperature of the GPU.",
  },
  gpuPower: {
    name: "yardmaster_gpu_power_watts",
    type: "gauge",
    labels: ["host", "gpu"],
    help: "Power draw.",
  },
  gpuFaulted: {
    name: "yardmaster_gpu_faulted",
    type: "gauge",
    labels: ["host", "gpu"],
    help: "1 while the GPU has a fault that counts, else 0; 0 also while it is unknown.",
  },
  gpuStale: {
    name: "yardmaster_gpu_stale",
    type: "gauge",
    labels: ["host", "gpu"],
    help: "1 while the GPU's newest sample is too old to tell anything, else 0.",
  },
  gpuSampleAge: {
    name: "yardmaster_gpu_sample_age_seconds",
    type: "gauge",
    labels: ["host", "gpu"],
    help: "Age of the GPU's newest sample.",
  },
  gpuFieldLost: {
    name: "yardmaster_gpu_field_lost",
    type: "gauge",
    labels: ["host", "gpu", "field"],
    help: "1 for a field (utilization, temperature, xid) that was told of this GPU and no longer is.",
  },
  gpuKnown: {
    name: "yardmaster_gpu_known",
    type: "gauge",
    labels: ["gpu"],
    help: "Of each GPU that an endpoint names: 1 when some source has told of it, else 0; its endpoint is then not guarded.",
  },
  gpuSourceState: {
    name: "yardmaster_gpu_source_state",
    type: "gauge",
    labels: ["source", "state"],
    help: "1 for the state that a source of GPU readings is in, 0 for the others.",
  },
  gpuSaturated: {
    name: "yardmaster_gpu_saturated",
    type: "gauge",
    labels: ["upstream"],
    help: "1 while the GPUs under all able endpoints are saturated, else 0.",
  },
  gpuGuardedEndpoints: {
    name: "yardmaster_gpu_guarded_endpoints",
    type: "gauge",
    labels: ["upstream"],
    help: "Endpoints that are out of rotation for their GPUs.",
  },
} as const satisfies Record<string, MetricDefinition>;
