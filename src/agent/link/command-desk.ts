import type { AgentMessage, ControlMessage, SaidLead } from "../../contract/agent-link.ts";
import { judgeCommand, judgeLead, type CommandTimes } from "../../decide/agent/command-gate.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Shards, VerbOutcome } from "../engine/shards.ts";
import type { AgentState } from "../state/agent-state.ts";
import type { WeightsCache } from "../weights/weights-cache.ts";
import type { ControlLink } from "./control-link.ts";

/**
 * Carries out commands, one after another over all links.
 *
 * Invariants:
 *   D1. What a lead or command raises (epoch, seq) is on the disk before anything is done.
 *   D2. A command's age is looked at again right before it is carried out: it may have waited behind others.
 *   D3. A command that comes again gets the answer of the first time, and has no second effect.
 *   D4. A command that can't be carried out because its raise can't be written has an answer that says so, and a lead is tried again
 *       for as long as it is said on its link.
 */
const LEAD_RETRY_MS = 2_000;
const WAITING_MAX = 1_000;
const ANSWERS_MAX = 2_000;

type Command = Extract<ControlMessage, { type: "command" }>;
type Result = Extract<AgentMessage, { type: "result" }>;

export interface DeskPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly state: AgentState;
  readonly shards: Shards;
  readonly weights: WeightsCache;
}

export class CommandDesk {
  readonly #ports: DeskPorts;
  readonly #answers = new Map<string, Result>();
  #waiting = 0;
  #last: Promise<void> = Promise.resolve();

  constructor(ports: DeskPorts) {
    this.#ports = ports;
  }

  lead(link: ControlLink, lead: SaidLead): void {
    this.#queue(async () => {
      // A later word on this link, or its end, has overtaken this one.
      if (link.said !== lead) return;
      const verdict = judgeLead(this.#ports.state.epoch, lead);
      if (verdict.kind === "refused") {
        this.#ports.log.warn("lead.refused", {
          control: link.url,
          epoch: lead.epoch,
          code: verdict.code,
          why: verdict.why,
        });
        return;
      }
      try {
        await this.#ports.state.keepEpoch(verdict.memory);
      } catch (error) {
        this.#ports.log.error("lead.not_kept", { epoch: lead.epoch, message: messageOf(error) });
        this.#ports.clock.after(LEAD_RETRY_MS, () => this.lead(link, lead));
        return;
      }
      link.lead = lead;
      this.#ports.log.info("lead.followed", { control: link.url, epoch: lead.epoch });
    });
  }

  command(link: ControlLink, command: Command, receivedAt: MonoMs): void {
    if (this.#waiting >= WAITING_MAX) {
      link.send(resultOf(command, { kind: "refused", code: "AGENT_BUSY", why: `${WAITING_MAX} commands are waiting` }));
      return;
    }
    const { provenAlive } = link;
    this.#queue(async () => {
      try {
        link.send(await this.#answer(link, command, receivedAt, provenAlive));
      } catch (error) {
        const why = `the agent can't write down what it is to do: ${messageOf(error)}`;
        link.send({ type: "result", commandId: command.commandId, outcome: "failed", code: "AGENT_STATE", why });
        throw error;
      }
    });
  }

  /** Resolves when all that was taken has been carried out. */
  settled(): Promise<void> {
    return this.#last;
  }

  async #answer(link: ControlLink, command: Command, receivedAt: MonoMs, provenAlive: MonoMs): Promise<Result> {
    const { state, clock, log } = this.#ports;
    const known = this.#answers.get(command.commandId);
    const times = (): CommandTimes => ({
      receivedAtMs: receivedAt,
      provenAliveMs: provenAlive,
      nowMs: clock.mono(),
    });
    const verdict = judgeCommand(state.epoch, link.lead, command, times(), known !== undefined);
    if (verdict.kind === "repeated" && known !== undefined) return known;
    if (verdict.kind === "carryOut") {
      await state.keepEpoch(verdict.memory);
      const again = judgeCommand(
        { ...verdict.memory, seq: command.seq - 1 },
        link.lead ?? command,
        command,
        times(),
        false,
      );
      if (again.kind === "carryOut") {
        const { epoch, holder, seq, verb } = command;
        const replica = "replicaId" in verb ? verb.replicaId : undefined;
        log.info("command.obeyed", { control: link.url, epoch, holder, seq, verb: verb.kind, replica });
        return this.#remember(command, await this.#carryOut(link, command));
      }
      if (again.kind === "refused") return this.#remember(command, again);
    }
    const refusal = verdict.kind === "refused" ? verdict : ({ kind: "refused", code: "REPLAYED", why: "" } as const);
    log.warn("command.refused", {
      control: link.url,
      epoch: command.epoch,
      seq: command.seq,
      verb: command.verb.kind,
      code: refusal.code,
      why: refusal.why,
    });
    return resultOf(command, refusal);
  }

  async #carryOut(link: ControlLink, { verb }: Command): Promise<VerbOutcome> {
    const { shards, weights } = this.#ports;
    switch (verb.kind) {
      case "start":
        return shards.start(verb);
      case "stop":
        return shards.stop(verb);
      case "forget":
        return shards.forget(verb);
      case "logs": {
        const lines = shards.lines(verb.replicaId, verb.lines);
        if (lines === null)
          return { kind: "refused", code: "SHARD_UNKNOWN", why: `there is no ${verb.replicaId} here` };
        link.send({ type: "logs", requestId: verb.requestId, lines });
        return { kind: "done" };
      }
      case "collect": {
        const results = await weights.collect(verb.names);
        link.send({ type: "collected", requestId: verb.requestId, results: [...results] });
        return { kind: "done" };
      }
      default:
        return assertNever(verb, "verb");
    }
  }

  #remember(command: Command, outcome: VerbOutcome): Result {
    const result = resultOf(command, outcome);
    this.#answers.set(command.commandId, result);
    for (const oldest of this.#answers.keys()) {
      if (this.#answers.size <= ANSWERS_MAX) break;
      this.#answers.delete(oldest);
    }
    if (outcome.kind === "refused")
      this.#ports.log.warn("command.refused", { verb: command.verb.kind, code: outcome.code, why: outcome.why });
    return result;
  }

  #queue(act: () => Promise<void>): void {
    this.#waiting += 1;
    this.#last = this.#last
      .then(act)
      .catch((error: unknown) => {
        // Nothing was done that is not on the disk; the leader's next pass sees what runs and decides anew.
        this.#ports.log.error("command.failed", { message: messageOf(error) });
      })
      .finally(() => (this.#waiting -= 1));
  }
}

function resultOf(command: Command, outcome: VerbOutcome): Result {
  const { commandId } = command;
  return outcome.kind === "refused"
    ? { type: "result", commandId, outcome: "refused", code: outcome.code, why: outcome.why.slice(0, 2_000) }
    : { type: "result", commandId, outcome: outcome.kind, code: null, why: null };
}
