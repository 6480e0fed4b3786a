import { type CommandEnvelope, isSameLead, type Lead, type SaidLead } from "../../contract/agent-link.ts";
import type { ErrorCode } from "../../kernel/errors.ts";

/**
 * Whether a command may be carried out. The memory is what the agent keeps on disk; it is written before anything is done
 * under it.
 *
 * Invariants:
 *   G1. An epoch never falls, and a number has one holder: of two control planes that believe to lead, one is obeyed.
 *   G2. A command is carried out at most once: `seq` only rises within an epoch.
 *   G3. A command is never carried out after its time, counted from its arrival and from the last proof that the link lives:
 *       one that waited in a buffer while either side was frozen is old, whatever its arrival says.
 */
export interface EpochMemory {
  readonly clusterId: string;
  readonly epoch: number;
  readonly holder: string;
  /** The highest `seq` of this epoch that was let in; -1 before the first. */
  readonly seq: number;
  /** The highest `commit` of a command that was let in, over all epochs of this cluster; 0 before the first. */
  readonly commit: number;
  /** What was said with `epoch` and with `commit`. */
  readonly epochProof: string;
  readonly commitProof: string;
}

export type GateCode = Extract<
  ErrorCode,
  "STALE_EPOCH" | "EPOCH_CONFLICT" | "CLUSTER_MISMATCH" | "NOT_LEADING" | "EXPIRED" | "REPLAYED"
>;

export type LeadVerdict =
  /** `memory` is to be on disk before a command of this lead is looked at. */
  | { readonly kind: "follow"; readonly memory: EpochMemory }
  | { readonly kind: "refused"; readonly code: GateCode; readonly why: string };

const no = (
  code: GateCode,
  why: string,
): { readonly kind: "refused"; readonly code: GateCode; readonly why: string } => ({
  kind: "refused",
  code,
  why,
});

export function judgeLead(memory: EpochMemory | null, lead: SaidLead): LeadVerdict {
  const stale = staleness(memory, lead);
  if (stale !== null) return stale;
  const kept = memory ?? { commit: 0, commitProof: "" };
  const seq = memory !== null && memory.epoch === lead.epoch ? memory.seq : -1;
  const { commit, commitProof } = kept;
  return { kind: "follow", memory: { ...pick(lead), seq, commit, epochProof: lead.proof, commitProof } };
}

function staleness(memory: EpochMemory | null, lead: Lead): Extract<LeadVerdict, { kind: "refused" }> | null {
  if (memory === null) return null;
  if (lead.clusterId !== memory.clusterId)
    return no("CLUSTER_MISMATCH", `this node belongs to cluster ${memory.clusterId}, not to ${lead.clusterId}`);
  if (lead.epoch < memory.epoch) return no("STALE_EPOCH", `epoch ${lead.epoch} is over: ${memory.epoch} has been seen`);
  if (lead.epoch === memory.epoch && lead.holder !== memory.holder)
    return no("EPOCH_CONFLICT", `epoch ${lead.epoch} has another holder already`);
  return null;
}

const pick = ({ clusterId, epoch, holder }: Lead): Lead => ({ clusterId, epoch, holder });

export interface CommandTimes {
  readonly receivedAtMs: number;
  /** When the other side last answered a ping, or the connection was made. */
  readonly provenAliveMs: number;
  readonly nowMs: number;
}

export type CommandVerdict =
  | { readonly kind: "carryOut"; readonly memory: EpochMemory }
  /** Seen before: answer as the first time. */
  | { readonly kind: "repeated" }
  | { readonly kind: "refused"; readonly code: GateCode; readonly why: string };

/** `lead`: what the sender said of itself on this connection, null when it said nothing. `seen`: the id was answered before. */
export function judgeCommand(
  memory: EpochMemory | null,
  lead: Lead | null,
  command: Omit<CommandEnvelope, "verb">,
  times: CommandTimes,
  seen: boolean,
): CommandVerdict {
  const stale = staleness(memory, command);
  if (stale !== null) return stale;
  if (lead === null || !isSameLead(lead, command))
    return no("NOT_LEADING", "the sender has not said on this link that it leads");
  if (memory === null || !isSameLead(memory, command))
    return no("NOT_LEADING", "the epoch of the command is not the one that is followed");
  if (seen) return { kind: "repeated" };
  const age = times.nowMs - Math.min(times.receivedAtMs, times.provenAliveMs);
  if (age > command.validForMs)
    return no("EXPIRED", `the command was to be carried out within ${command.validForMs} ms`);
  if (command.seq <= memory.seq) return no("REPLAYED", `command ${command.seq} comes after ${memory.seq}`);
  const { seq, commit, commitProof } = command;
  const raised = commit > memory.commit ? { commit, commitProof } : {};
  return { kind: "carryOut", memory: { ...memory, seq, ...raised } };
}
