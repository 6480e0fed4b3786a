import type { MetricDefinition } from "./metric-definition.ts";

/** Of work that may go to tiers. */
export const OVERFLOW_METRICS = {
  overflowDecisions: {
    name: "yardmaster_overflow_decisions_total",
    type: "counter",
    labels: ["upstream", "decision"],
    help: "Where work of an upstream that may overflow was to run: local, held off a busy card, or on a tier.",
  },
  overflowRefusals: {
    name: "yardmaster_overflow_refusals_total",
    type: "counter",
    labels: ["tier", "lack"],
    help: "What a tier lacked when work was to go there.",
  },
  overflowSubmissions: {
    name: "yardmaster_overflow_submissions_total",
    type: "counter",
    labels: ["tier", "outcome"],
    help: "Work that was sent to a tier, by what the tier made of it.",
  },
  overflowSignalBusy: {
    name: "yardmaster_overflow_signal_busy",
    type: "gauge",
    labels: ["upstream", "place", "signal"],
    help: "1 while the signal at this place of the list says that the card is busy. Absent while it is broken.",
  },
  overflowSignalBroken: {
    name: "yardmaster_overflow_signal_broken",
    type: "gauge",
    labels: ["upstream", "place", "signal"],
    help: "1 while the signal at this place of the list can't be read; it counts as not busy then.",
  },
  overflowInFlight: {
    name: "yardmaster_overflow_in_flight",
    type: "gauge",
    labels: ["tier"],
    help: "Jobs and calls of this gateway that are with the tier.",
  },
} as const satisfies Record<string, MetricDefinition>;
