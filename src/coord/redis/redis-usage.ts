import { randomBytes } from "node:crypto";
import { OTHERS, type UsageFlush, type UsageRow } from "../../decide/usage/usage-book.ts";
import { dayEnds } from "../../decide/limits/windows.ts";
import {
  TOLD_KEPT_MS,
  USAGE_BOUNDS,
  type UsageAsk,
  type UsageBounds,
  type UsagePiece,
  type UsagePlaceRead,
  type UsageStore,
  type UsageWritten,
} from "../usage/usage-store.ts";
import { itemsOf, type Argument, type Reply } from "./redis-connection.ts";
import type { RedisLink } from "./redis-link.ts";
import { loadScript } from "./script.ts";
import { answerOf, whyNothing } from "./step-answer.ts";

const ADD = loadScript(new URL("./add-usage.lua", import.meta.url));

const ID_BYTES = 9;
const DAY_MS = 86_400_000;
/** Nobody's request waits for it. */
const PATIENT_MS = 1_000;
/** Keys of one piece of an answer. */
const PIECE_KEYS = 16;

/** What was used, in Redis, shared by all gateways of one `key_prefix`. All of it has one hash tag, so a cluster keeps it on one node. */
export class RedisUsage implements UsageStore {
  readonly kind = "redis";
  readonly #link: RedisLink;
  readonly #tag: string;
  readonly #keepMs: number;
  readonly #bounds: UsageBounds;

  constructor(link: RedisLink, keepDays: number, bounds: UsageBounds = USAGE_BOUNDS) {
    this.#link = link;
    this.#tag = `{${link.settings.keyPrefix}:usage}`;
    this.#keepMs = keepDays * DAY_MS;
    this.#bounds = bounds;
  }

  async id(): Promise<string> {
    const key = `${this.#tag}:id`;
    // Another gateway may be first.
    await this.#command("SET", [key, randomBytes(ID_BYTES).toString("base64url"), "NX"]);
    return String(await this.#command("GET", [key]));
  }

  async add(gateway: string, { seq, rows }: UsageFlush): Promise<UsageWritten> {
    const keys = [`${this.#tag}:told:${gateway}`];
    for (const { day, keyId } of rows) keys.push(this.#index(day), this.#sums(day, keyId), this.#sums(day, OTHERS));
    const request = {
      seq,
      toldMs: TOLD_KEPT_MS,
      keysMax: this.#bounds.keysPerDay,
      modelsMax: this.#bounds.modelsPerKey,
      others: OTHERS,
      rows: rows.map(({ day, keyId, model, counts }) => ({
        key: keyId,
        model: model.toWellFormed(),
        until: dayEnds(day * DAY_MS) + this.#keepMs,
        counts: Object.entries(counts).flat(),
      })),
    };
    const step = await this.#link.run(ADD, keys, [JSON.stringify(request)], { timeoutMs: PATIENT_MS });
    return answerOf(step, (reply) => (reply === "done" ? { kind: "done" } : undefined));
  }

  async read({ fromDay, toDay, keyId }: UsageAsk, after: UsagePlaceRead | null): Promise<UsagePiece> {
    const day = after?.day ?? fromDay;
    if (day > toDay) return { rows: [], next: null };
    const keys = keyId === null ? await this.#keysOf(day, after?.keyId ?? "") : [keyId];
    const rows = (await Promise.all(keys.map((key) => this.#rowsOf(day, key)))).flat();
    const last = keys.length < PIECE_KEYS ? undefined : keys.at(-1);
    if (last !== undefined) return { rows, next: { day, keyId: last, model: "" } };
    return { rows, next: day < toDay ? { day: day + 1, keyId: "", model: "" } : null };
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #index(day: number): string {
    return `${this.#tag}:keys:${day}`;
  }

  #sums(day: number, keyId: string): string {
    return `${this.#tag}:sums:${day}:${keyId}`;
  }

  async #keysOf(day: number, after: string): Promise<string[]> {
    const from = after === "" ? "-" : `(${after}`;
    const reply = await this.#command("ZRANGEBYLEX", [this.#index(day), from, "+", "LIMIT", 0, PIECE_KEYS]);
    return itemsOf(reply).map(String);
  }

  async #rowsOf(day: number, keyId: string): Promise<UsageRow[]> {
    const fields = itemsOf(await this.#command("HGETALL", [this.#sums(day, keyId)])).map(String);
    const rows = new Map<string, Record<string, number>>();
    for (let i = 0; i + 1 < fields.length; i += 2) {
      const [field = "", amount] = [fields[i], Number(fields[i + 1])];
      const blank = field.indexOf(" ");
      const counter = field.slice(0, blank);
      if (blank <= 0 || counter === "=" || !Number.isSafeInteger(amount)) continue;
      const model = field.slice(blank + 1);
      let counts = rows.get(model);
      if (counts === undefined) rows.set(model, (counts = {}));
      counts[counter] = amount;
    }
    return [...rows].map(([model, counts]) => ({ day, keyId, model, counts }));
  }

  async #command(name: string, args: readonly Argument[]): Promise<Reply> {
    const outcome = await this.#link.command(name, args, { timeoutMs: PATIENT_MS });
    if (outcome.kind === "reply") return outcome.reply;
    throw new Error(whyNothing(outcome));
  }
}
