import { formatProblemsInLine } from "../../config/config-problem.ts";
import { type InvalidYaml, readTextFile, refuseFile } from "../../config/checked-yaml.ts";
import { CATALOG_BYTES_MAX } from "../../config/load-catalog.ts";
import { watchConfig } from "../../config/watch-config.ts";
import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { ControlStore } from "../store/control-store.ts";
import {
  type CatalogKeeper,
  type CatalogProposal,
  describeDiff,
  describeHarm,
  type ProposalOutcome,
} from "./catalog-keeper.ts";

export interface CatalogSourcePorts {
  readonly path: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly keeper: CatalogKeeper;
  readonly store: Pick<ControlStore, "catalogFileDigest">;
  /** Only the leader takes its file over: of two with different files, one rules. */
  readonly leading: () => boolean;
  readonly onEvent: (event: NewEvent) => void;
  /** Puts what nobody asked for by a request on record before it is saved, and what came of it. */
  readonly audited: <T>(save: (onRecord: OnRecord) => Promise<T>) => Promise<T>;
  readonly signal: AbortSignal;
}

export interface HeldCatalog {
  readonly token: string;
  readonly why: string;
}

type OnRecord = CatalogProposal["onRecord"];

interface Valid {
  readonly kind: "valid";
  readonly text: string;
  readonly digest: string;
}

/** Of a list whose writing pauses, a part is a whole list as well: the file must have been at rest for longer than a pause of its writer. */
const SETTLE = { quietMs: 2_000, quietMsMax: 20_000 };
const RETRY_MS = 2_000;

/**
 * The watched catalog file. A text is taken over once, when it has changed: what an operator has applied since by other ways is
 * not undone by a restart or by a new leader with the old file.
 */
export class CatalogSource {
  readonly #ports: CatalogSourcePorts;
  #last: Valid | undefined;
  #busy: Promise<void> = Promise.resolve();
  /** What waits for a confirmation; told once. */
  #held: HeldCatalog | null = null;
  #refused: string | null = null;
  #retry: Timer | undefined;
  readonly #watching: { reload(): void };

  constructor(ports: CatalogSourcePorts) {
    const { path, clock, signal } = ports;
    this.#ports = ports;
    this.#watching = watchConfig<Valid>({
      path,
      clock,
      signal,
      digest: undefined,
      settle: SETTLE,
      load: () => this.#load(),
      onValid: (loaded) => {
        this.#last = loaded;
        this.#refused = null;
        this.look();
      },
      onInvalid: (problems) => {
        this.#last = undefined;
        const message = formatProblemsInLine(problems);
        this.#refused = `the file was refused, the last catalog stays: ${message}`;
        ports.log.error("catalog.refused", { message });
        ports.onEvent(controlEvent("catalogRefused", this.#refused));
      },
    });
  }

  /** Something may have changed: the file, or who leads. */
  look(): void {
    this.#retry?.cancel();
    this.#busy = this.#busy
      .then(() => this.#take())
      .catch((error: unknown) => {
        const { log, clock, signal } = this.#ports;
        const why = messageOf(error);
        log.warn("catalog.notSaved", { why });
        this.#refused = `the file could not be put in force yet: ${why}`;
        if (!signal.aborted) this.#retry = clock.after(RETRY_MS, () => this.look());
      });
  }

  /** Reads the file again, and tells of its mistakes again. */
  reload(): void {
    this.#watching.reload();
  }

  /** Why the file is not in force, in words; null: it is, waits for a confirmation, or is not this one's to take over. */
  get refused(): string | null {
    return this.#refused;
  }

  /** The change that waits for a confirmation; null when none does. */
  get held(): HeldCatalog | null {
    return this.#held;
  }

  /** Takes over what waits. Undefined when nothing waits. */
  async confirm(token: string, by: Pick<CatalogProposal, "author" | "onRecord">): Promise<ProposalOutcome | undefined> {
    const held = this.#held;
    if (held === null || this.#last === undefined) return undefined;
    const outcome = await this.#propose(this.#last, { ...by, confirm: token });
    if (outcome.kind !== "unconfirmed") this.#held = null;
    return outcome;
  }

  async #load(): Promise<Valid | InvalidYaml> {
    const { path, keeper } = this.#ports;
    const read = await readTextFile(path, CATALOG_BYTES_MAX);
    if (read.kind === "invalid") return read;
    try {
      const checked = await keeper.check(read.text, path);
      return checked.kind === "invalid" ? checked : { kind: "valid", text: read.text, digest: checked.digest };
    } catch (error) {
      return refuseFile(path, messageOf(error));
    }
  }

  async #take(): Promise<void> {
    const { log, store, leading, onEvent, audited } = this.#ports;
    const loaded = this.#last;
    if (loaded !== undefined) this.#refused = null;
    if (loaded === undefined || !leading() || (await store.catalogFileDigest()) === loaded.digest) return;
    const outcome = await audited(async (onRecord) => {
      const proposed = await this.#propose(loaded, { author: "file", onRecord });
      if (proposed.kind === "changed")
        throw new YardmasterError(
          "CATALOG_CHANGED",
          `another one was applied meanwhile, as revision ${proposed.revision}`,
        );
      return proposed;
    });
    if (outcome.kind !== "unconfirmed") {
      this.#held = null;
      return;
    }
    const { token, harm, diff } = outcome;
    if (this.#held?.token === token) return;
    const why = `the file would take away ${describeHarm(harm)}: ${describeDiff(diff)}`;
    this.#held = { token, why };
    const message = `${why}. The last catalog stays until: yardmaster ctl catalog confirm ${token}`;
    log.error("catalog.held", { message });
    onEvent(controlEvent("catalogHeld", message));
  }

  async #propose(
    loaded: Valid,
    by: Pick<CatalogProposal, "author" | "confirm" | "onRecord">,
  ): Promise<ProposalOutcome> {
    const { keeper, path, log } = this.#ports;
    const outcome = await keeper.propose({ text: loaded.text, source: path, origin: "file", ...by });
    if (outcome.kind === "applied")
      for (const warning of outcome.warnings) log.warn("catalog.warning", { message: warning });
    return outcome;
  }
}
