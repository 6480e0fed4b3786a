import { createHash, randomUUID } from "node:crypto";
import { formatIsoTime, type Clock, type EpochMs, type MonoMs } from "../../kernel/clock.ts";
import { Watched } from "../wait-for.ts";
import type { AnalyzerAction } from "./analyzer-script.ts";

export type OperationState = "notStarted" | "running" | "succeeded" | "failed";

export interface Submission {
  readonly family: "documentintelligence" | "formrecognizer";
  readonly apiVersion: string;
  readonly model: string;
  readonly query: string;
  readonly contentType: string;
  /** As received: name, value, name, value. */
  readonly headers: readonly string[];
  readonly body: Buffer;
}

/** One document that the analyzer took in. */
export interface AnalyzerOperation extends Omit<Submission, "body"> {
  readonly id: string;
  readonly action: AnalyzerAction;
  readonly bodySha256: string;
  readonly bodyBytes: number;
  readonly submittedMs: MonoMs;
  readonly createdAt: EpochMs;
  looks: number;
  /** The finished result was handed over. */
  delivered: boolean;
  deleted: boolean;
  lost: boolean;
}

/** The analyzer's own account. Tests trust it instead of the gateway's figures. */
export interface AnalyzerLedger {
  /** Requests to analyse, refused ones too. */
  readonly submits: number;
  readonly refused: number;
  /** Operations that occupy the analyzer: taken in, and neither at their end, deleted nor lost. */
  readonly runningNow: number;
  readonly runningPeak: number;
  /** Oldest first, the newest 10 000. */
  readonly operations: readonly AnalyzerOperation[];
}

const OPERATIONS_MAX = 10_000;
const SAMPLE_TEXT = "The quick brown fox signs the lease. ";

export class AnalyzerOperations {
  readonly #clock: Clock;
  readonly #retentionMs: number;
  readonly #analyzeMs: number;
  readonly #state = new Watched();
  #operations: AnalyzerOperation[] = [];
  #submits = 0;
  #refused = 0;
  #runningPeak = 0;

  constructor(clock: Clock, options: { readonly retentionMs: number; readonly analyzeMs: number }) {
    this.#clock = clock;
    this.#retentionMs = options.retentionMs;
    this.#analyzeMs = options.analyzeMs;
  }

  countSubmit(): void {
    this.#submits += 1;
    this.#state.changed();
  }

  countRefusal(): void {
    this.#refused += 1;
    this.#state.changed();
  }

  takeIn({ body, ...submission }: Submission, action: AnalyzerAction): AnalyzerOperation {
    const operation: AnalyzerOperation = {
      ...submission,
      id: randomUUID(),
      action,
      bodySha256: createHash("sha256").update(body).digest("hex"),
      bodyBytes: body.length,
      submittedMs: this.#clock.mono(),
      createdAt: this.#clock.wall(),
      looks: 0,
      delivered: false,
      deleted: false,
      lost: false,
    };
    this.#operations.push(operation);
    if (this.#operations.length > OPERATIONS_MAX) this.#operations.shift();
    this.#runningPeak = Math.max(this.#runningPeak, this.#runningNow());
    this.#state.changed();
    return operation;
  }

  /** One look at an operation; undefined when there is none by that name any more. */
  look(model: string, id: string): AnalyzerOperation | undefined {
    const operation = this.#find(model, id);
    if (operation === undefined) return undefined;
    operation.looks += 1;
    if (operation.looks > (operation.action.lostAfterLooks ?? Number.POSITIVE_INFINITY)) operation.lost = true;
    this.#state.changed();
    return operation.lost ? undefined : operation;
  }

  remove(model: string, id: string): boolean {
    const operation = this.#find(model, id);
    if (operation !== undefined) operation.deleted = true;
    this.#state.changed();
    return operation !== undefined;
  }

  /** As when the container is restarted: it keeps nothing. */
  forgetAll(): void {
    for (const operation of this.#operations) operation.lost = true;
    this.#state.changed();
  }

  stateOf(operation: AnalyzerOperation): OperationState {
    const age = this.#clock.mono() - operation.submittedMs;
    const { startMs = 0, analyzeMs = this.#analyzeMs, end = "succeeded" } = operation.action;
    if (age < startMs) return "notStarted";
    return end === "never" || age < startMs + analyzeMs ? "running" : end;
  }

  /** The JSON that a look shows. */
  view(operation: AnalyzerOperation): Record<string, unknown> {
    const state = this.stateOf(operation);
    const error = operation.action.error ?? {
      code: "InternalServerError",
      message: "An unexpected error occurred.",
    };
    if (state === "succeeded") operation.delivered = true;
    return {
      status: state,
      createdDateTime: formatIsoTime(operation.createdAt),
      lastUpdatedDateTime: formatIsoTime(this.#clock.wall()),
      ...(state === "failed" ? { error } : {}),
      ...(state === "succeeded" ? { analyzeResult: resultOf(operation) } : {}),
    };
  }

  ledger(): AnalyzerLedger {
    return {
      submits: this.#submits,
      refused: this.#refused,
      runningNow: this.#runningNow(),
      runningPeak: this.#runningPeak,
      operations: this.#operations.map((operation) => ({ ...operation })),
    };
  }

  until(what: string, met: (ledger: AnalyzerLedger) => boolean): Promise<void> {
    return this.#state.until(what, () => met(this.ledger()));
  }

  #find(model: string, id: string): AnalyzerOperation | undefined {
    const found = this.#operations.find((operation) => operation.id === id && operation.model === model);
    if (found === undefined || found.deleted || found.lost) return undefined;
    return this.#clock.mono() - found.submittedMs > this.#retentionMs ? undefined : found;
  }

  #runningNow(): number {
    return this.#operations.filter(
      (operation) =>
        !operation.deleted && !operation.lost && ["notStarted", "running"].includes(this.stateOf(operation)),
    ).length;
  }
}

function resultOf(operation: AnalyzerOperation): Record<string, unknown> {
  const bytes = operation.action.textBytes ?? 0;
  const content = `${SAMPLE_TEXT.repeat(Math.ceil(bytes / SAMPLE_TEXT.length))}sha256 ${operation.bodySha256}`;
  return {
    apiVersion: operation.apiVersion,
    modelId: operation.model,
    stringIndexType: new URLSearchParams(operation.query).get("stringIndexType") ?? "textElements",
    ...(operation.family === "documentintelligence" ? { contentFormat: "text" } : {}),
    content,
    pages: [{ pageNumber: 1, angle: 0, width: 8.5, height: 11, unit: "inch", words: [], lines: [], spans: [] }],
  };
}
