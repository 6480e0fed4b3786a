import {
  CLOSED_KEPT_MS,
  kindOf,
  OPEN_DOCS_MAX,
  type CommitOutcome,
  type Doc,
  type DocCommit,
  type DocStore,
} from "../overflow/doc-store.ts";
import { itemsOf, type Argument, type Reply } from "./redis-connection.ts";
import type { RedisLink, StepOutcome } from "./redis-link.ts";
import { loadScript, type Script } from "./script.ts";
import { whyNothing } from "./step-answer.ts";

const script = (name: string): Script => loadScript(new URL(`./${name}.lua`, import.meta.url));
const LOAD = script("load-docs");
const COMMIT = script("commit-docs");
const OPEN = script("open-docs");

/** Money waits for its step longer than a slot does: giving up means that the work stays here, which costs minutes. */
const PATIENT_MS = 1_000;
const LISTED_MAX = 1_000;

/** The ledger in Redis, shared by all gateways of one `key_prefix`. All of it has one hash tag, so a cluster keeps it on one node. */
export class RedisDocs implements DocStore {
  readonly kind = "redis";
  readonly #link: RedisLink;
  readonly #tag: string;
  /** Until when the next step may be done, by the server's clock. */
  #notAfter = 0;

  constructor(link: RedisLink) {
    this.#link = link;
    this.#tag = `{${link.settings.keyPrefix}:overflow}`;
  }

  async load(names: readonly string[]): Promise<{ readonly docs: readonly Doc[]; readonly now: number }> {
    const keys = names.map((name) => this.#text(name));
    const [time, ...texts] = itemsOf(await this.#run(LOAD, keys, []));
    const now = Number(time);
    if (!Number.isFinite(now) || texts.length !== names.length) throw new Error("the ledger said what can't be read");
    this.#notAfter = now + PATIENT_MS;
    return { docs: texts.map((text) => (typeof text === "string" ? text : null)), now };
  }

  async commit({ from, writes }: DocCommit): Promise<CommitOutcome> {
    const keys = [
      ...from.map(([name]) => this.#text(name)),
      ...writes.flatMap(({ name }) => [this.#text(name), this.#index(kindOf(name))]),
    ];
    const args: Argument[] = [
      this.#notAfter,
      from.length,
      writes.length,
      OPEN_DOCS_MAX,
      CLOSED_KEPT_MS,
      ...from.map(([, doc]) => (doc === null ? "" : `=${doc}`)),
      ...writes.flatMap(({ name, text, open }) => [name, text, open ? "1" : "0"]),
    ];
    const said = await this.#run(COMMIT, keys, args);
    if (said === "done" || said === "changed" || said === "full") return said;
    // Too late for this try: what was read is read anew.
    if (said === "late") return "changed";
    throw new Error("the ledger said what can't be read");
  }

  async open(kind: string): Promise<readonly (readonly [string, string])[]> {
    const said = itemsOf(await this.#run(OPEN, [this.#index(kind)], [this.#text(""), LISTED_MAX]));
    return said.flatMap((name, i) => (i % 2 === 0 ? [[String(name), String(said[i + 1])] as const] : []));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #text(name: string): string {
    return `${this.#tag}:doc:${name}`;
  }

  #index(kind: string): string {
    return `${this.#tag}:open:${kind}`;
  }

  async #run(step: Script, keys: readonly string[], args: readonly Argument[]): Promise<Reply> {
    const unfit = this.#link.facts?.unfitForJobs ?? null;
    // A server that throws texts away when it is full would forget what was spent.
    if (unfit !== null) throw new Error(`the server is not fit for it: ${unfit}`);
    return replyOf(await this.#link.run(step, keys, args, { timeoutMs: PATIENT_MS }));
  }
}

function replyOf(outcome: StepOutcome): Reply {
  if (outcome.kind === "reply") return outcome.reply;
  throw new Error(whyNothing(outcome));
}
