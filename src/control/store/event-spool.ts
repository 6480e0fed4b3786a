import { appendFile, readFile, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import { makeFolder } from "../../kernel/make-folder.ts";

export interface EventSpoolPorts {
  readonly store: { addEvents(events: readonly NewEvent[]): Promise<void> };
  /** Where events wait while the store is away. */
  readonly path: string;
  readonly clock: Clock;
  readonly log: Logger;
}

const HELD_MAX = 1_000;
const FILE_BYTES_MAX = 4 * 1024 * 1024;
const BATCH_MAX = 200;
const RETRY_MS = 2_000;

/**
 * Events on their way to the store. While it is away they wait in a file, which survives the end of the process, and follow when
 * it is back: each at least once, in order.
 *
 * Invariants:
 *   E1. `tell` never waits and never throws.
 *   E2. An event is given up only when the file is full, and then counted and told.
 *   E3. One write is under way at a time; what the file holds goes first.
 */
export class EventSpool {
  readonly #ports: EventSpoolPorts;
  #held: NewEvent[] = [];
  #lost = 0;
  #away = false;
  #running: Promise<void> | undefined;
  #saving: Promise<void> = Promise.resolve();
  #retry: Timer | undefined;

  /** Goes on with what an earlier process left. */
  constructor(ports: EventSpoolPorts) {
    this.#ports = ports;
    this.#away = true;
    this.#run();
  }

  tell(event: NewEvent): void {
    if (this.#held.length >= HELD_MAX) this.#lost += 1;
    else this.#held.push(event);
    if (this.#retry === undefined) this.#run();
    else this.#saving = this.#saving.then(() => this.#save());
  }

  /** What was told so far is in the store, in the file, or given up. */
  async settled(): Promise<void> {
    await this.#running;
    await this.#saving;
  }

  /** Writes what is held, to the store or the file. */
  async close(): Promise<void> {
    this.#cancelRetry();
    await this.settled();
    await this.#flush();
    this.#cancelRetry();
  }

  #cancelRetry(): void {
    this.#retry?.cancel();
    this.#retry = undefined;
  }

  #run(): void {
    this.#running ??= this.#flush().finally(() => {
      this.#running = undefined;
      if (this.#held.length > 0 && this.#retry === undefined) this.#run();
    });
  }

  async #flush(): Promise<void> {
    const { store, log } = this.#ports;
    try {
      if (this.#away) await this.#drainFile();
      while (this.#held.length > 0) {
        const batch = this.#held.slice(0, BATCH_MAX);
        await store.addEvents(batch);
        this.#held.splice(0, batch.length);
      }
    } catch (error) {
      if (!this.#away)
        log.warn("events.waiting", {
          why: messageOf(error),
          path: this.#ports.path,
        });
      this.#away = true;
      this.#saving = this.#saving.then(() => this.#save());
      await this.#saving;
      this.#retry?.cancel();
      this.#retry = this.#ports.clock.after(RETRY_MS, () => {
        this.#retry = undefined;
        this.#run();
      });
    }
  }

  /** From memory to the file. */
  async #save(): Promise<void> {
    const { path, log } = this.#ports;
    const events = this.#held;
    this.#held = [];
    if (events.length === 0) return;
    try {
      const size = await stat(path).then(
        (info) => info.size,
        () => 0,
      );
      const text = events.map((event) => `${JSON.stringify(event)}\n`).join("");
      if (size + text.length > FILE_BYTES_MAX) throw new Error("the file is full");
      await makeFolder(dirname(path));
      await appendFile(path, text, { mode: 0o600 });
    } catch (error) {
      this.#lost += events.length;
      log.error("events.lost", { lost: this.#lost, why: messageOf(error) });
    }
  }

  async #drainFile(): Promise<void> {
    const { path, store } = this.#ports;
    await this.#saving;
    const text = await readFile(path, "utf8").catch(() => "");
    const events = text.split("\n").flatMap(readLine);
    if (this.#lost > 0)
      events.push(controlEvent("eventsLost", `${this.#lost} events could not be kept while the store was away`));
    for (let at = 0; at < events.length; at += BATCH_MAX) await store.addEvents(events.slice(at, at + BATCH_MAX));
    this.#lost = 0;
    if (text !== "") await rm(path, { force: true });
    this.#away = false;
  }
}

/** A line that a crash cut is left out. */
function readLine(line: string): NewEvent[] {
  if (line === "") return [];
  try {
    return [JSON.parse(line) as NewEvent];
  } catch {
    return [];
  }
}
