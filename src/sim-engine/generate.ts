import type { Clock } from "../kernel/clock.ts";
import { type Call, sseHeaders } from "./call.ts";
import type { EngineCore, Work } from "./engine-core.ts";
import { ENGINE_DEAD, errorBody, errorEvent, type Refusal } from "./error-bodies.ts";
import { EventStream } from "./event-stream.ts";
import type { GenerationRequest } from "./parse-generation.ts";
import { NATURAL_TOKENS_MAX } from "./options.ts";
import { planOutput } from "./plan-output.ts";
import { llamaChat, llamaCompletions } from "./shapes/llamacpp-openai.ts";
import { messages } from "./shapes/messages.ts";
import { responses } from "./shapes/responses.ts";
import type { AnswerFacts, AnswerShape } from "./shapes/shape.ts";
import { vllmChat, vllmCompletions } from "./shapes/vllm-openai.ts";

export interface EngineParts {
  readonly core: EngineCore;
  readonly clock: Clock;
  readonly seed: number;
  /** The name in answers. */
  readonly model: string;
}

function shapeOf(call: Call, facts: AnswerFacts): AnswerShape {
  const vllm = call.dialect === "vllm";
  switch (facts.request.kind) {
    case "chat":
      return vllm ? vllmChat(facts) : llamaChat(facts);
    case "completions":
      return vllm ? vllmCompletions(facts) : llamaCompletions(facts);
    case "responses":
      return responses(call.dialect, facts);
    case "messages":
      return messages(call.dialect, facts);
  }
}

/** Takes the request through queue, slot and answer. Everything after this call comes from the core's ticks. */
export function runGeneration(parts: EngineParts, call: Call, request: GenerationRequest, id: string): void {
  const { action, record } = call;
  const plan = planOutput({
    seed: parts.seed,
    promptText: request.promptText,
    maxTokens: request.maxTokens,
    naturalTokensMax: NATURAL_TOKENS_MAX,
    stop: request.stop,
    tools: request.tools,
    toolChoice: request.toolChoice,
    ...(action.tokens === undefined ? {} : { forcedTokens: action.tokens }),
  });
  const facts: AnswerFacts = {
    request,
    plan,
    id,
    createdS: Math.floor(parts.clock.wall() / 1_000),
    model: parts.model,
    cachedTokens: 0,
    prefillMs: 0,
    decodeMs: 0,
  };
  const shape = shapeOf(call, facts);
  const answer = new Answer(parts, call, facts, shape);
  const firstDelayMs =
    action.hangAfterHead === true || action.hangNoHead === true ? Number.POSITIVE_INFINITY : action.delayFirstMs;
  const work = parts.core.submit(
    {
      promptText: request.promptText,
      promptTokens: request.promptTokens,
      outputTokens: plan.tokens,
      priority: request.priority,
      finish: plan.finish,
      choices: request.n,
      ...(action.delayBetweenMs === undefined ? {} : { gapMs: action.delayBetweenMs }),
      ...(firstDelayMs === undefined ? {} : { firstDelayMs }),
      ...(action.hangAfterTokens === undefined ? {} : { stallAfter: action.hangAfterTokens }),
    },
    answer,
  );
  answer.attach(work);
  // llama.cpp looks for its client only between the results of a stream: a call without one runs to its end for nobody.
  const stops = request.stream || call.dialect === "vllm";
  call.whenLost(() => {
    answer.stop();
    if (!stops) return;
    work.leave();
    record.left();
  });
}

class Answer {
  readonly #parts: EngineParts;
  readonly #call: Call;
  readonly #facts: AnswerFacts;
  readonly #shape: AnswerShape;
  readonly #events: EventStream | undefined;
  #work: Work | undefined;
  #startedMs = 0;
  #firstMs = 0;

  constructor(parts: EngineParts, call: Call, facts: AnswerFacts, shape: AnswerShape) {
    this.#parts = parts;
    this.#call = call;
    this.#facts = facts;
    this.#shape = shape;
    if (!facts.request.stream) return;
    this.#events = new EventStream(call, errorEvent(call.dialect, facts.request.kind), () => this.#leave());
    // vLLM answers at admission, long before a slot is free; llama.cpp when it has something to say.
    if ((call.dialect === "vllm" || call.action.hangAfterHead === true) && call.action.hangNoHead !== true)
      this.#head();
  }

  attach(work: Work): void {
    this.#work = work;
  }

  stop(): void {
    this.#events?.stop();
  }

  #leave(): void {
    this.#events?.stop();
    this.#work?.leave();
    this.#call.record.left();
  }

  #head(): void {
    if (this.#call.headSent) return;
    this.#call.head(200, sseHeaders(this.#call.dialect), undefined);
    this.#events?.startPings(this.#parts.clock);
  }

  queued(): void {
    this.#call.record.queued();
  }

  started(cachedTokens: number): void {
    this.#startedMs = this.#parts.clock.mono();
    this.#facts.cachedTokens = cachedTokens;
    this.#call.record.slotTaken();
  }

  tokens(from: number, count: number): void {
    const { record } = this.#call;
    record.entry.tokens += count * this.#facts.request.n;
    if (from === 0) {
      this.#firstMs = this.#parts.clock.mono();
      this.#facts.prefillMs = this.#firstMs - this.#startedMs;
    }
    if (this.#events === undefined) return;
    if (from === 0) {
      this.#head();
      this.#shape.open(this.#events.emit);
    }
    for (let index = from; index < from + count; index += 1) this.#shape.token(index, this.#events.emit);
  }

  ended(): void {
    this.#facts.decodeMs = this.#facts.plan.tokens > 0 ? this.#parts.clock.mono() - this.#firstMs : 0;
    this.#call.record.left();
    if (this.#events === undefined) {
      this.#call.json(200, this.#shape.whole());
      return;
    }
    this.#head();
    if (this.#facts.plan.tokens === 0) this.#shape.open(this.#events.emit);
    this.#shape.close(this.#events.emit);
    this.#events.end();
  }

  failed(): void {
    this.#call.record.left();
    failCall(this.#call, this.#events, ENGINE_DEAD, errorEvent(this.#call.dialect, this.#facts.request.kind));
  }
}

/** What each engine does to a request that it can't go on with. */
export function failCall(call: Call, events: EventStream | undefined, refusal: Refusal, event: string): void {
  call.markFailed();
  if (call.dialect === "llama.cpp") {
    events?.stop();
    call.sink.cut("fin");
  } else if (events === undefined) {
    call.json(refusal.status, errorBody(call.dialect, refusal, false));
  } else {
    events.fail(event, true);
  }
}
