import type { CommandEnvelope } from "../../contract/agent-link.ts";
import type { NodeReport } from "../../contract/fleet.ts";
import type { SimClock } from "./sim-clock.ts";

export interface Lead {
  readonly epoch: number;
  readonly holder: string;
}
export type ToControl = { readonly type: "report"; readonly report: NodeReport };
export type ToAgent =
  | { readonly type: "pong" }
  | ({ readonly type: "lead" } & Lead)
  | { readonly type: "command"; readonly command: CommandEnvelope };

const LATENCY_MS = 3;
/** Without a word from the other side for this long, a side takes the connection for dead. */
const DEAD_MS = 30_000;

/**
 * The connection between one control plane and one agent. Each direction keeps its order and can be blocked alone: what is sent
 * meanwhile arrives afterwards, as TCP does it, unless one side has given the connection up by then.
 */
export class SimLink {
  readonly blocked = { toControl: false, toAgent: false };
  isUp = false;
  heardByControl = 0;
  heardByAgent = 0;
  onReport: (message: ToControl) => void = () => {};
  onMessage: (message: ToAgent) => void = () => {};
  readonly #clock: SimClock;
  #queues: { toControl: ToControl[]; toAgent: ToAgent[] } = { toControl: [], toAgent: [] };
  #round = 0;

  constructor(clock: SimClock) {
    this.#clock = clock;
  }

  get isOpen(): boolean {
    return !this.blocked.toControl && !this.blocked.toAgent;
  }

  dial(): boolean {
    if (this.isUp || !this.isOpen) return this.isUp;
    this.isUp = true;
    this.heardByControl = this.#clock.mono();
    this.heardByAgent = this.#clock.mono();
    return true;
  }

  close(): void {
    this.isUp = false;
    this.#round += 1;
    this.#queues = { toControl: [], toAgent: [] };
  }

  closeIfDead(): void {
    const now = this.#clock.mono();
    if (this.isUp && (now - this.heardByControl > DEAD_MS || now - this.heardByAgent > DEAD_MS)) this.close();
  }

  report(message: ToControl): void {
    if (!this.isUp) return;
    this.#queues.toControl.push(message);
    this.#later(() => this.#deliverToControl());
  }

  tell(message: ToAgent): void {
    if (!this.isUp) return;
    this.#queues.toAgent.push(message);
    this.#later(() => this.#deliverToAgent());
  }

  /** After a direction was opened again. */
  flush(): void {
    this.#later(() => {
      this.#deliverToControl();
      this.#deliverToAgent();
    });
  }

  #later(deliver: () => void): void {
    const round = this.#round;
    this.#clock.after(LATENCY_MS, () => {
      if (round === this.#round) deliver();
    });
  }

  #deliverToControl(): void {
    while (!this.blocked.toControl && this.#queues.toControl.length > 0) {
      this.heardByControl = this.#clock.mono();
      this.onReport(this.#queues.toControl.shift()!);
    }
  }

  #deliverToAgent(): void {
    while (!this.blocked.toAgent && this.#queues.toAgent.length > 0) {
      this.onMessage(this.#queues.toAgent.shift()!);
      this.heardByAgent = this.#clock.mono();
    }
  }
}
