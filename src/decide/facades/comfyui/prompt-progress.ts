import { parseJsonObject } from "../../engines/readings.ts";
import { isJsonObject } from "../../http/token-usage.ts";

export interface SocketReading {
  /** How far the prompt is, 0 to 100; undefined where the message says nothing new. */
  readonly percent: number | undefined;
  /** It says that the prompt has ended, which the history has to confirm. */
  readonly ended: boolean;
}

const NOTHING: SocketReading = { percent: undefined, ended: false };
const ENDS: ReadonlySet<unknown> = new Set(["execution_success", "execution_error", "execution_interrupted"]);

/**
 * How far a prompt is, from what ComfyUI's socket tells of it: nodes that are done, and the steps of the one at work. It only
 * grows, and 100 is left to the result.
 */
export class PromptProgress {
  readonly #promptId: string;
  readonly #nodes: number;
  readonly #done = new Set<string>();
  #current: string | null = null;
  #percent = 0;

  /** `nodes`: of the whole graph. */
  constructor(promptId: string, nodes: number) {
    this.#promptId = promptId;
    this.#nodes = Math.max(1, nodes);
  }

  push(message: string): SocketReading {
    const parsed = parseJsonObject(message);
    const data = parsed?.["data"];
    if (!isJsonObject(data) || data["prompt_id"] !== this.#promptId) return NOTHING;
    const type = parsed?.["type"];
    if (ENDS.has(type) || (type === "executing" && data["node"] === null)) return { percent: undefined, ended: true };
    if (type === "execution_cached" && Array.isArray(data["nodes"]))
      for (const node of data["nodes"]) if (typeof node === "string") this.#finish(node);
    if (type === "executing" && typeof data["node"] === "string") this.#enter(data["node"]);
    if (type === "executed" && typeof data["node"] === "string") this.#finish(data["node"]);
    return { percent: this.#grow(type === "progress" ? partOf(data["value"], data["max"]) : 0), ended: false };
  }

  #enter(node: string): void {
    if (this.#current !== null && this.#current !== node) this.#finish(this.#current);
    this.#current = node;
  }

  /** Names beyond those of the graph (nodes that expand into others) can't fill memory. */
  #finish(node: string): void {
    if (this.#done.size < this.#nodes) this.#done.add(node);
  }

  #grow(part: number): number | undefined {
    const percent = Math.min(99, Math.floor((100 * (this.#done.size + part)) / this.#nodes));
    if (percent <= this.#percent) return undefined;
    this.#percent = percent;
    return percent;
  }
}

const partOf = (value: unknown, max: unknown): number =>
  typeof value === "number" && typeof max === "number" && max > 0 && value >= 0 ? Math.min(1, value / max) : 0;
