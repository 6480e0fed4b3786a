import type { Role } from "../../contract/roles.ts";
import { type Ask, ASK_BYTES_MAX, ASKS_MAX } from "../../contract/feed-board.ts";
import type { GatewayMessage } from "../../contract/feed.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { GatewayPeer } from "./gateway-peer.ts";

/** Whoever asks, as the control plane has let them in. */
export interface Asker {
  readonly keyId: string;
  readonly role: Role;
}

export interface AskFor {
  readonly method: Ask["method"];
  readonly target: string;
  /** JSON. */
  readonly body?: string;
  readonly credential?: string;
  readonly bytesMax?: number;
  /** How long until the answer's head. */
  readonly headMs?: number;
}

export interface AskListener {
  readonly onHead: (status: number, headers: Readonly<Record<string, string>>) => void;
  readonly onText: (text: string) => void;
  /** Called once. `silent`: no head in time, or the connection ended. */
  readonly onEnd: (how: "whole" | "broken" | "tooLarge" | "busy" | "silent") => void;
}

export interface WholeAnswer {
  readonly gateway: string;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
}

type Answer = Extract<GatewayMessage, { type: "answerHead" | "answerText" | "answerEnd" }>;

const HEAD_MS = 5_000;
const BYTES_MAX = 2 * 1024 * 1024;

interface Running {
  readonly peer: GatewayPeer;
  readonly listener: AskListener;
  readonly late: Timer;
}

/**
 * Requests to gateways over the connections that they keep.
 *
 * Invariants:
 *   A1. Each is answered once: by its gateway, by the time that it has, or by the end of the connection.
 *   A2. What nobody waits for any more is called off there.
 */
export class GatewayAsks {
  readonly #clock: Clock;
  readonly #running = new Map<number, Running>();
  #number = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Returns what calls it off; the listener then hears nothing more. */
  ask(peer: GatewayPeer, asker: Asker, what: AskFor, listener: AskListener): () => void {
    this.#number += 1;
    const n = this.#number;
    const { method, target, body = null, credential = null, bytesMax = BYTES_MAX, headMs = HEAD_MS } = what;
    if (body !== null && body.length > ASK_BYTES_MAX)
      throw new YardmasterError("BODY_TOO_LARGE", `more than ${ASK_BYTES_MAX} characters can't be passed on`);
    const late = this.#clock.after(headMs, () => {
      peer.say({ type: "askOff", n });
      this.#end(n, "silent");
    });
    this.#running.set(n, { peer, listener, late });
    const { keyId, role } = asker;
    const said =
      this.#countOf(peer) <= ASKS_MAX &&
      peer.say({ type: "ask", n, method, target, body, keyId, role, credential, bytesMax });
    if (!said) queueMicrotask(() => this.#end(n, "busy"));
    return () => {
      if (!this.#running.has(n)) return;
      this.#forget(n);
      peer.say({ type: "askOff", n });
    };
  }

  /** Rejects with GATEWAY_SILENT. */
  askWhole(peer: GatewayPeer, asker: Asker, what: AskFor): Promise<WholeAnswer> {
    return new Promise((resolve, reject) => {
      let [status, text] = [0, ""];
      let headers: Readonly<Record<string, string>> = {};
      this.ask(peer, asker, what, {
        onHead: (itsStatus, itsHeaders) => ([status, headers] = [itsStatus, itsHeaders]),
        onText: (part) => (text += part),
        onEnd: (how) => {
          if (how === "whole" && status > 0) resolve({ gateway: peer.id, status, headers, text });
          else reject(new YardmasterError("GATEWAY_SILENT", `gateway ${peer.name} ${WORDS[how]}`));
        },
      });
    });
  }

  take(peer: GatewayPeer, message: Answer): void {
    const running = this.#running.get(message.n);
    // Of another connection: a number that was guessed, or one whose ask has ended.
    if (running?.peer !== peer) return;
    if (message.type === "answerHead") {
      running.late.cancel();
      running.listener.onHead(message.status, message.headers);
    } else if (message.type === "answerText") running.listener.onText(message.text);
    else this.#end(message.n, message.outcome);
  }

  left(peer: GatewayPeer): void {
    for (const [n, running] of this.#running) if (running.peer === peer) this.#end(n, "silent");
  }

  #countOf(peer: GatewayPeer): number {
    let count = 0;
    for (const running of this.#running.values()) if (running.peer === peer) count += 1;
    return count;
  }

  #end(n: number, how: Parameters<AskListener["onEnd"]>[0]): void {
    const running = this.#running.get(n);
    if (running === undefined) return;
    this.#forget(n);
    running.listener.onEnd(how);
  }

  #forget(n: number): void {
    this.#running.get(n)?.late.cancel();
    this.#running.delete(n);
  }
}

const WORDS = {
  whole: "gave no answer",
  broken: "broke its answer off",
  tooLarge: "has a larger answer than can be passed on",
  busy: "has as many questions as it takes",
  silent: "did not answer in time",
} as const;
