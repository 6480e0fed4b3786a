import type { TryEvent } from "../../../src/contract/board.ts";

/** One try of a model, as far as it has come. Null: not known, or not yet. */
export interface Trial {
  readonly state: "asking" | "answering" | "done" | "failed" | "stopped";
  readonly text: string;
  readonly thinking: string;
  readonly queueMs: number | null;
  readonly firstByteMs: number | null;
  readonly tokensPerSecond: number | null;
  readonly completionTokens: number | null;
  readonly promptTokens: number | null;
  readonly totalMs: number | null;
  readonly endpoint: string | null;
  readonly requestId: string | null;
  readonly finish: string | null;
  readonly failure: string | null;
}

export const NEW_TRIAL: Trial = {
  state: "asking",
  text: "",
  thinking: "",
  queueMs: null,
  firstByteMs: null,
  tokensPerSecond: null,
  completionTokens: null,
  promptTokens: null,
  totalMs: null,
  endpoint: null,
  requestId: null,
  finish: null,
  failure: null,
};

/** More of an answer is not kept. */
const TEXT_CHARS_MAX = 200_000;
const added = (text: string, more: string): string => (text.length >= TEXT_CHARS_MAX ? text : text + more);

export function takeTryEvent(trial: Trial, event: TryEvent): Trial {
  switch (event.kind) {
    case "head":
      return {
        ...trial,
        state: "answering",
        queueMs: event.queueMs,
        endpoint: event.endpoint,
        requestId: event.requestId,
      };
    case "text":
      return {
        ...trial,
        text: added(trial.text, event.text),
        firstByteMs: trial.firstByteMs ?? event.firstByteMs ?? null,
      };
    case "thinking":
      return {
        ...trial,
        thinking: added(trial.thinking, event.text),
        firstByteMs: trial.firstByteMs ?? event.firstByteMs ?? null,
      };
    case "end": {
      const { totalMs, promptTokens, completionTokens, tokensPerSecond, finish } = event;
      return { ...trial, state: "done", totalMs, promptTokens, completionTokens, tokensPerSecond, finish };
    }
    case "error":
      return { ...trial, state: "failed", failure: `${event.code}: ${event.message}` };
  }
}
