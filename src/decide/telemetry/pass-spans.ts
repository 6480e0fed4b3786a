import type { FleetEvent, FleetEventKind, ReplicaDoc } from "../../contract/fleet.ts";
import { type EpochMs, parseIsoTime } from "../../kernel/clock.ts";

/** A span that has ended, in the words of the control plane. */
export interface PassSpan {
  readonly name: "reconcile.pass" | "replica.placement" | "replica.start" | "replica.restart" | "reconcile.refusal";
  readonly startMs: number;
  readonly endMs: number;
  /** Whether it is a part of the pass, or something that began long before it. */
  readonly isOfPass: boolean;
  readonly isError: boolean;
  readonly attributes: Readonly<Record<string, string | number>>;
}

export interface PassFacts {
  readonly beganAt: EpochMs;
  readonly tookMs: number;
  readonly writes: number;
  readonly commands: number;
  readonly unplaced: number;
  readonly events: readonly FleetEvent[];
  /** With the pass's own writes. */
  readonly replicas: ReadonlyMap<string, ReplicaDoc>;
}

/** A pass that refuses or begins more than this tells of the first ones, and of how many there were. */
export const SPANS_OF_PASS_MAX = 200;

type Told = Omit<PassSpan, "startMs" | "endMs" | "isOfPass"> & { readonly since?: number };

/** The spans of a finished pass, the pass itself first. A pass that did nothing has none. */
export function passSpans(facts: PassFacts): readonly PassSpan[] {
  const { beganAt, tookMs, writes, commands, unplaced, events } = facts;
  if (writes + commands + events.length === 0) return [];
  const endMs = beganAt + tookMs;
  const parts = events.flatMap((event) => describe(event, facts) ?? []);
  const pass: PassSpan = {
    name: "reconcile.pass",
    startMs: beganAt,
    endMs,
    isOfPass: false,
    isError: false,
    attributes: {
      "yardmaster.pass.writes": writes,
      "yardmaster.pass.commands": commands,
      "yardmaster.pass.events": events.length,
      "yardmaster.pass.unplaced": unplaced,
      "yardmaster.pass.spans_left_out": Math.max(0, parts.length - SPANS_OF_PASS_MAX),
    },
  };
  const told = parts.slice(0, SPANS_OF_PASS_MAX).map(({ since, ...part }): PassSpan => {
    const isOfPass = since === undefined;
    // A clock that was set back since then makes a span of no length, not one that ends before it begins.
    return { ...part, isOfPass, startMs: isOfPass ? beganAt : Math.min(since, endMs), endMs };
  });
  return [pass, ...told];
}

const REFUSALS: ReadonlySet<FleetEventKind> = new Set([
  "modelUnplaced",
  "restartRefused",
  "rolloutStopped",
  "modelParked",
]);

function describe(event: FleetEvent, { replicas }: PassFacts): Told | null {
  const { kind, why } = event;
  const attributes = aboutEvent(event);
  if (REFUSALS.has(kind)) {
    const refused = { ...attributes, "error.type": kind, "yardmaster.why": why };
    return { name: "reconcile.refusal", isError: true, attributes: refused };
  }
  const doc = event.replicaId === null ? undefined : replicas.get(event.replicaId);
  if (kind === "replicaPlaced") return { name: "replica.placement", isError: false, attributes };
  if (doc === undefined) return null;
  const since = parseIsoTime(doc.createdAt);
  if (since === undefined) return null;
  if (kind === "replicaReady") return { name: "replica.start", isError: false, attributes, since };
  if (kind === "restartDone") {
    const done = { ...attributes, "yardmaster.why": why };
    return { name: "replica.restart", isError: false, attributes: done, since };
  }
  // Only what has never served has failed to start.
  if (kind !== "replicaFailed" || doc.readyAt !== null) return null;
  const failed = { ...attributes, "error.type": doc.failure?.kind ?? "failed", "yardmaster.why": why };
  return { name: "replica.start", isError: true, attributes: failed, since };
}

function aboutEvent({ model, replicaId, nodeId }: FleetEvent): Readonly<Record<string, string>> {
  return {
    ...(model === null ? {} : { "yardmaster.model": model }),
    ...(replicaId === null ? {} : { "yardmaster.replica": replicaId }),
    ...(nodeId === null ? {} : { "yardmaster.node": nodeId }),
  };
}
