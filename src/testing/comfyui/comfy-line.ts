import type { Clock, Timer } from "../../kernel/clock.ts";
import { Watched } from "../wait-for.ts";
import type { ComfyAction } from "./comfy-script.ts";

export type PromptState = "pending" | "running" | "success" | "error" | "interrupted" | "deleted" | "lost";

/** One prompt that ComfyUI took. */
export interface ComfyPrompt {
  readonly id: string;
  readonly number: number;
  readonly clientId: string | null;
  /** The body of its submission, byte for byte. */
  readonly body: string;
  readonly graph: Readonly<Record<string, unknown>>;
  readonly action: ComfyAction;
  state: PromptState;
  looks: number;
}

/** ComfyUI's own account. Tests trust it instead of the gateway's figures. */
export interface ComfyLedger {
  /** Requests to take a workflow, refused ones too. */
  readonly submits: number;
  /** Interruptions that were asked for while something ran, and those of them that named another prompt than the one that ran. */
  readonly interrupts: number;
  readonly wrongInterrupts: number;
  /** Times that a prompt began to run. */
  readonly runs: number;
  /** In the order of their submission. */
  readonly prompts: readonly ComfyPrompt[];
}

/** Messages of the socket, for one client. */
export type Say = (clientId: string | null, type: string, data: Readonly<Record<string, unknown>>) => void;

/** ComfyUI's line: one prompt at a time, in the order of the numbers. */
export class ComfyLine {
  readonly #clock: Clock;
  readonly #say: Say;
  readonly #state = new Watched();
  /** `lost` ones too, which ComfyUI itself knows no more. */
  #prompts: ComfyPrompt[] = [];
  #submits = 0;
  #interrupts = 0;
  #wrongInterrupts = 0;
  #runs = 0;
  #numbers = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock, say: Say) {
    this.#clock = clock;
    this.#say = say;
  }

  countSubmit(): void {
    this.#submits += 1;
    this.#state.changed();
  }

  add(prompt: Pick<ComfyPrompt, "id" | "clientId" | "body" | "graph" | "action">, front: boolean): ComfyPrompt {
    const number = front ? -++this.#numbers : ++this.#numbers;
    const taken: ComfyPrompt = { ...prompt, number, state: "pending", looks: 0 };
    this.#prompts.push(taken);
    this.#next();
    this.#state.changed();
    return taken;
  }

  get running(): ComfyPrompt | undefined {
    return this.#prompts.find(({ state }) => state === "running");
  }

  get pending(): readonly ComfyPrompt[] {
    return this.#prompts.filter(({ state }) => state === "pending");
  }

  /** What the history has: ended ones. */
  ended(id: string): ComfyPrompt | undefined {
    const prompt = this.#prompts.findLast(
      (one) => one.id === id && ["success", "error", "interrupted"].includes(one.state),
    );
    return prompt;
  }

  look(id: string): void {
    for (const prompt of this.#prompts) if (prompt.id === id) prompt.looks += 1;
    this.#state.changed();
  }

  find(id: string): ComfyPrompt | undefined {
    return this.#prompts.findLast((one) => one.id === id && one.state !== "lost");
  }

  delete(ids: readonly unknown[]): void {
    for (const prompt of this.#prompts)
      if (prompt.state === "pending" && ids.includes(prompt.id)) prompt.state = "deleted";
    this.#state.changed();
  }

  /** `id` null: whatever runs. `ignoresId`: as older builds do. */
  interrupt(id: string | null, ignoresId: boolean): void {
    const running = this.running;
    if (running === undefined) return;
    this.#interrupts += 1;
    if (id !== running.id) this.#wrongInterrupts += 1;
    if (id === null || ignoresId || id === running.id) this.#end(running, "interrupted");
    this.#state.changed();
  }

  /** Ends what runs, for actions that never end. */
  finish(state: "success" | "error" = "success"): void {
    if (this.running !== undefined) this.#end(this.running, state);
  }

  /** The process was started anew: it keeps nothing. */
  loseAll(): void {
    this.#timer?.cancel();
    for (const prompt of this.#prompts) prompt.state = "lost";
    this.#state.changed();
  }

  stop(): void {
    this.#timer?.cancel();
  }

  ledger(): ComfyLedger {
    return {
      submits: this.#submits,
      interrupts: this.#interrupts,
      wrongInterrupts: this.#wrongInterrupts,
      runs: this.#runs,
      prompts: this.#prompts.map((prompt) => ({ ...prompt })),
    };
  }

  until(what: string, met: (ledger: ComfyLedger) => boolean): Promise<void> {
    return this.#state.until(what, () => met(this.ledger()));
  }

  /** How far the one that runs is: the socket says so. */
  tellStep(value: number, max: number): void {
    const running = this.running;
    if (running === undefined) return;
    const node = Object.keys(running.graph)[0] ?? "1";
    this.#tell(running, "progress", { value, max, node });
  }

  #next(): void {
    if (this.running !== undefined) return;
    const [next] = this.pending.toSorted((a, b) => a.number - b.number);
    if (next === undefined) return;
    next.state = "running";
    this.#runs += 1;
    this.#tell(next, "execution_start", {});
    this.#tell(next, "executing", { node: Object.keys(next.graph)[0] ?? "1" });
    const { end = "success", runMs = 0 } = next.action;
    if (end === "never") return;
    const state = end === "error" || end === "outOfMemory" ? "error" : "success";
    this.#timer = this.#clock.after(runMs, () => this.#end(next, state));
  }

  #end(prompt: ComfyPrompt, state: "success" | "error" | "interrupted"): void {
    this.#timer?.cancel();
    prompt.state = state;
    if (state === "success") this.#tell(prompt, "executing", { node: null });
    else this.#tell(prompt, state === "error" ? "execution_error" : "execution_interrupted", {});
    this.#next();
    this.#state.changed();
  }

  #tell(prompt: ComfyPrompt, type: string, data: Readonly<Record<string, unknown>>): void {
    if (prompt.action.mute !== true) this.#say(prompt.clientId, type, { ...data, prompt_id: prompt.id });
  }
}
