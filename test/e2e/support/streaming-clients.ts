import { type MonoMs, systemClock } from "../../../src/kernel/clock.ts";
import { Watched } from "../../../src/testing/wait-for.ts";
import { aTask, call, type CallAnswer } from "./calls.ts";
import type { GatewayProcess } from "./gateway-process.ts";

/** One call as its client saw it, whichever gateways it went to. */
export interface ClientRecord {
  readonly startedAt: MonoMs;
  readonly endedAt: MonoMs;
  /** That answered, or was asked last. */
  readonly gateway: string;
  /** As the answer names it. */
  readonly endpoint: string | undefined;
  /** `cut`: it had begun to answer and came to no regular end. `failed`: it never began. */
  readonly outcome: "whole" | "cut" | "failed";
  readonly status: number;
  readonly text: string;
}

const PATIENCE_MS = 60_000;
/** Without an answer a gateway is given a moment before it is asked again. */
const AGAIN_MS = 50;
const never = new AbortController().signal;

/**
 * Clients that stream without pause through several gateways. A connection that is refused, or ends before an answer has begun,
 * is no failure: the other gateway is asked, as a balancer does.
 */
export class StreamingClients {
  readonly records: ClientRecord[] = [];
  readonly #gateways: readonly GatewayProcess[];
  readonly #body: Readonly<Record<string, unknown>>;
  readonly #state = new Watched();
  readonly #loops: readonly Promise<void>[];
  #isOver = false;

  constructor(
    gateways: readonly GatewayProcess[],
    options: { readonly clients: number; readonly model: string; readonly tokens: number },
  ) {
    this.#gateways = gateways;
    this.#body = aTask({ tokens: options.tokens, delayBetweenMs: 20 }, { model: options.model });
    this.#loops = Array.from({ length: options.clients }, (_, at) => this.#run(at));
  }

  /** Resolves when so many more calls have ended. */
  more(count: number): Promise<void> {
    const goal = this.records.length + count;
    return this.#state.until(`${count} more calls to end`, () => this.records.length >= goal, PATIENCE_MS);
  }

  /** Resolves when all calls under way have ended. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#loops);
  }

  async #run(client: number): Promise<void> {
    for (let turn = client; !this.#isOver; turn += 1) {
      this.records.push(await this.#call(turn));
      this.#state.changed();
    }
  }

  async #call(turn: number): Promise<ClientRecord> {
    const startedAt = systemClock.mono();
    for (let at = turn; ; at += 1) {
      const gateway = this.#gateways[at % this.#gateways.length]!;
      const answer = await call(gateway.at, { body: this.#body, patienceMs: PATIENCE_MS });
      const endedAt = systemClock.mono();
      if (answer.status === 0 && endedAt - startedAt < PATIENCE_MS) {
        await systemClock.sleep(AGAIN_MS, never);
        continue;
      }
      const { status, text, headers } = answer;
      const endpoint = headers["x-yardmaster-endpoint"];
      return {
        startedAt,
        endedAt,
        gateway: gateway.name,
        endpoint: Array.isArray(endpoint) ? endpoint[0] : endpoint,
        outcome: outcomeOf(answer),
        status,
        text,
      };
    }
  }
}

function outcomeOf({ status, whole, text }: CallAnswer): ClientRecord["outcome"] {
  if (status !== 200) return "failed";
  return whole && text.endsWith("data: [DONE]\n\n") ? "whole" : "cut";
}

/** Whether the stream said what happened before it ended. */
export const toldOfError = ({ text }: ClientRecord): boolean => /\ndata: \{"error":/.test(text);
