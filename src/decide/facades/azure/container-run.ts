import { assertNever } from "../../../kernel/assert-never.ts";
import { operationIdOf, resultPath, type AnalyzeTarget } from "./analyze-paths.ts";
import type { OperationReading } from "./operation.ts";

/**
 * One document's way through a container that speaks Azure's protocol: submitted once, looked at until it has ended. It makes
 * one exchange of many, so that whoever holds a slot for it holds it for as long as the container is at work.
 *
 * Invariants:
 *   R1. It ends once, and after that asks for nothing more.
 *   R2. It ends well only with a look that held a result.
 *   R3. Between two looks lies a wait of LOOK_MS_MIN to LOOK_MS_MAX, whatever the container says.
 *   R4. LOOK_FAILURES_MAX looks in a row that told nothing end it: a container that can't be asked is as good as gone.
 *   R5. Looks go to the endpoint that took the document in, by the id that it gave: never to an address that it names.
 */
export type RunStep =
  | { readonly kind: "look"; readonly path: string }
  | { readonly kind: "wait"; readonly ms: number }
  /** The container's refusal of the document goes on as it is. */
  | { readonly kind: "refused" }
  /** The look's bytes are the answer. */
  | { readonly kind: "succeeded" }
  /** The look's bytes are the answer: the document can't be analysed. */
  | { readonly kind: "failed"; readonly code: string; readonly message: string }
  /** "reset": another try may do better; "protocol": the container doesn't speak the protocol. */
  | { readonly kind: "broken"; readonly failure: "reset" | "protocol"; readonly why: string };

/** The head of a container's answer, as far as it matters. */
export interface ContainerHead {
  readonly status: number;
  /** Milliseconds by `Retry-After`. */
  readonly retryAfterMs: number | undefined;
  readonly operationLocation: string | undefined;
}

export const LOOK_MS_MIN = 100;
export const LOOK_MS_MAX = 10_000;
export const LOOK_FAILURES_MAX = 6;
/** Without a word from the container: soon at first, as many documents take no second, then ever less often. */
const LOOK_MS_FIRST = 200;
const LOOK_GROWTH = 1.5;
const LOOK_MS_USUAL_MAX = 2_000;
const FAILURE_MS = 500;

export class ContainerRun {
  readonly #target: AnalyzeTarget;
  #operationId: string | null = null;
  #looks = 0;
  #failures = 0;
  /** The container is at work on the document, as far as anybody can know. */
  #under = false;

  constructor(target: AnalyzeTarget) {
    this.#target = target;
  }

  /** Where the operation can be called off; null where none is under way, or the family has no such request. */
  get removal(): string | null {
    if (!this.#under || this.#operationId === null || this.#target.family !== "documentintelligence") return null;
    return resultPath(this.#target, this.#operationId);
  }

  onSubmitted(head: ContainerHead): RunStep {
    if (head.status !== 202) return { kind: "refused" };
    const id = head.operationLocation === undefined ? undefined : operationIdOf(head.operationLocation, this.#target);
    if (id === undefined)
      return {
        kind: "broken",
        failure: "protocol",
        why: "the container took the document in and named no operation to ask for",
      };
    this.#operationId = id;
    this.#under = true;
    return this.#waitFor(head.retryAfterMs);
  }

  onWaited(): RunStep {
    return { kind: "look", path: resultPath(this.#target, this.#operationId ?? "") };
  }

  /** `reading` is of a whole body with status 200; undefined with any other status, and where the look broke off. */
  onLooked(head: ContainerHead | undefined, reading: OperationReading | undefined): RunStep {
    if (head?.status === 404 || head?.status === 410)
      return this.#end({
        kind: "broken",
        failure: "reset",
        why: "the container knows nothing of the document any more",
      });
    if (head === undefined || reading === undefined) {
      const said = head === undefined ? "its connection broke" : `it answered ${head.status}`;
      return this.#lookFailed(head, `the container can't be asked for the document: ${said}`);
    }
    switch (reading.kind) {
      case "under":
        this.#failures = 0;
        return this.#waitFor(head.retryAfterMs);
      case "succeeded":
        return this.#end({ kind: "succeeded" });
      case "failed":
        return this.#end({ kind: "failed", code: reading.code, message: reading.message });
      case "noResult":
        return this.#end({
          kind: "broken",
          failure: "reset",
          why: "the container says that it succeeded and gives no result",
        });
      case "unreadable":
        return this.#lookFailed(head, reading.why);
      default:
        return assertNever(reading, "reading of an operation");
    }
  }

  #lookFailed(head: ContainerHead | undefined, why: string): RunStep {
    this.#failures += 1;
    if (this.#failures >= LOOK_FAILURES_MAX) return { kind: "broken", failure: "reset", why };
    return { kind: "wait", ms: within(Math.max(head?.retryAfterMs ?? 0, FAILURE_MS * this.#failures)) };
  }

  #waitFor(retryAfterMs: number | undefined): RunStep {
    const usual = Math.min(LOOK_MS_USUAL_MAX, LOOK_MS_FIRST * LOOK_GROWTH ** this.#looks);
    this.#looks += 1;
    return { kind: "wait", ms: within(retryAfterMs ?? usual) };
  }

  #end<T extends RunStep>(step: T): T {
    this.#under = false;
    return step;
  }
}

const within = (ms: number): number => Math.min(LOOK_MS_MAX, Math.max(LOOK_MS_MIN, ms));
