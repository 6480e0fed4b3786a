import type { Readiness } from "../../decide/agent/launch/launch-plan.ts";
import type { HealthStage } from "../../decide/agent/start-progress.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import { askEngine, readHealth, tryInference, type EngineAddress } from "./engine-http.ts";

/** While it starts; an engine whose page is dear (it generates) is asked at a quarter of its usual pace. */
const STARTING_EVERY_MS = 500;
/** A first inference may compile for a long while. */
const INFERENCE_MS_MAX = 300_000;
/** A shard without a port serves once it has lived for so long. */
const PROCESS_MS_MIN = 5_000;

/**
 * Asks one engine about itself in the background, one question at a time: looks never wait for answers.
 *
 * Invariant Q1: an engine that serves is never asked for an inference: a busy one would only get more to do.
 */
export class EngineChecks {
  readonly #clock: Clock;
  readonly #readiness: Readiness;
  readonly #address: EngineAddress | null;
  readonly #onChange: () => void;
  #asking = false;
  #askedAt: MonoMs | null = null;
  #stage: HealthStage = "none";
  #unwell = false;
  #served: boolean;
  #aliveSince: MonoMs | null = null;

  constructor(
    clock: Clock,
    readiness: Readiness,
    address: EngineAddress | null,
    served: boolean,
    onChange: () => void,
  ) {
    this.#clock = clock;
    this.#readiness = readiness;
    this.#address = address;
    this.#served = served;
    this.#onChange = onChange;
  }

  get stage(): HealthStage {
    return this.#stage;
  }

  get service(): "unknown" | "serves" | "unwell" {
    if (!this.#served) return "unknown";
    return this.#unwell ? "unwell" : "serves";
  }

  /** Asks the next question if it is time. */
  look(): void {
    const now = this.#clock.mono();
    this.#aliveSince ??= now;
    if (this.#readiness.kind === "process" || this.#address === null) {
      this.#served ||= now - this.#aliveSince >= PROCESS_MS_MIN;
      return;
    }
    const { healthEveryMs } = this.#readiness;
    const every = this.#served ? healthEveryMs : Math.max(STARTING_EVERY_MS, (healthEveryMs - 5_000) / 4);
    if (this.#asking || (this.#askedAt !== null && now - this.#askedAt < every)) return;
    this.#asking = true;
    this.#askedAt = now;
    void this.#ask(this.#readiness, this.#address).finally(() => (this.#asking = false));
  }

  async #ask(readiness: Extract<Readiness, { kind: "http" }>, address: EngineAddress): Promise<void> {
    const { healthPath: path, healthTimeoutMs: timeoutMs } = readiness;
    const { stage, unwell } = readHealth(await askEngine(this.#clock, address, { path, timeoutMs }));
    const before = [this.#stage, this.#unwell, this.#served].join();
    this.#stage = stage;
    this.#unwell = unwell;
    if (!this.#served && stage === "healthy")
      this.#served = await tryInference(this.#clock, address, readiness.probes, INFERENCE_MS_MAX);
    if (before !== [this.#stage, this.#unwell, this.#served].join()) this.#onChange();
  }
}
