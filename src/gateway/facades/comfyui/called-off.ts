import { readQueue } from "../../../decide/facades/comfyui/prompt-pages.ts";
import type { Clock } from "../../../kernel/clock.ts";
import type { ComfySite } from "./comfy-site.ts";

/** A prompt that nobody waits for at this gateway any more. */
export interface LeftPrompt {
  readonly jobId: string;
  readonly site: ComfySite;
  readonly promptId: string;
}

export interface CalledOffPorts {
  readonly clock: Clock;
  /** Whether somebody may still want the job's result. Rejects while nobody can know. */
  readonly isJobOpen: (jobId: string) => Promise<boolean>;
}

const LOOK_MS = 10_000;
/** After that ComfyUI's own end of the prompt is as near as any. */
const LOOKS_MAX = 360;
const LEFT_MAX = 1_000;

/**
 * Prompts whose call has ended before them. One whose job is still open is left at work: another attempt, here or at another
 * gateway, goes on with it. One whose job has ended is called off, and nobody else's prompt ever is.
 *
 * Invariants:
 *   L1. Deleted and interrupted is only what the queue shows under the prompt's own id.
 *   L2. While nobody can know whether the job is open, nothing is called off.
 *   L3. A prompt is looked after LOOKS_MAX times at most, and LEFT_MAX prompts at once.
 */
export class CalledOff {
  readonly #ports: CalledOffPorts;
  readonly #left = new Set<LeftPrompt>();
  readonly #stopped = new AbortController();

  constructor(ports: CalledOffPorts) {
    this.#ports = ports;
  }

  leave(prompt: LeftPrompt): void {
    if (this.#left.size >= LEFT_MAX || this.#stopped.signal.aborted) return;
    this.#left.add(prompt);
    void this.#follow(prompt).finally(() => this.#left.delete(prompt));
  }

  stop(): void {
    this.#stopped.abort();
  }

  async #follow(prompt: LeftPrompt): Promise<void> {
    const { clock } = this.#ports;
    const { signal } = this.#stopped;
    for (let look = 0; look < LOOKS_MAX && !signal.aborted; look += 1) {
      if (!(await this.#isOpen(prompt.jobId))) return callOff(prompt, signal);
      await clock.sleep(LOOK_MS, signal).catch(() => {}); // Stopped: the loop ends.
    }
  }

  async #isOpen(jobId: string): Promise<boolean> {
    try {
      return await this.#ports.isJobOpen(jobId);
    } catch {
      return true;
    }
  }
}

async function callOff({ site, promptId }: LeftPrompt, signal: AbortSignal): Promise<void> {
  await site.post("/queue", { delete: [promptId] }, signal);
  const page = await site.page("/queue", signal);
  const queue = page === undefined ? undefined : readQueue(page, promptId);
  // An older ComfyUI interrupts whatever runs, so it is asked only while that is ours.
  if (queue?.kind === "running") await site.post("/interrupt", { prompt_id: queue.promptId }, signal);
}
