import { randomBytes } from "node:crypto";
import type { AuditGap, AuditPage, AuditQuery, AuditRecord } from "../../contract/audit-event.ts";
import { itemsOf, type Reply } from "../../coord/redis/redis-connection.ts";
import type { RedisLink, StepOutcome } from "../../coord/redis/redis-link.ts";
import { loadScript } from "../../coord/redis/script.ts";
import type { Timer } from "../../kernel/clock.ts";
import { recordOf, rowMatches, rowOf, type AuditRow } from "./audit-row.ts";
import type { AuditSink } from "./audit-sink.ts";
import type { AuditSegment } from "./audit-spool.ts";
import { type AuditBackend, SpooledAudit, type SpooledAuditOptions } from "./spooled-audit.ts";

const APPEND = loadScript(new URL("./audit-append.lua", import.meta.url));
const READ = loadScript(new URL("./audit-read.lua", import.meta.url));

export interface RedisAuditOptions extends SpooledAuditOptions {
  readonly link: RedisLink;
  /** Events kept, about: Redis trims a stream by whole nodes. */
  readonly max: number;
}

/** Nobody's request waits for the audit, so it may take longer than those that do. */
const STEP_MS_MAX = 2_000;
const PAGE_EVENTS = 500;
/** How often a run that records nothing says that it is alive, and after how long without it is one that did not close. */
const BEAT_MS = 20_000;
const SILENT_MS = 90_000;

/** Events of all gateways in one stream. Returns at once: a server that is away is a growing spool, never a failed start. */
export const openRedisAudit = (options: RedisAuditOptions): AuditSink =>
  new SpooledAudit(new RedisBackend(options), options);

class RedisBackend implements AuditBackend {
  readonly place = "redis";
  onBack: (() => void) | null = null;
  readonly #options: RedisAuditOptions;
  readonly #runId = randomBytes(8).toString("hex");
  readonly #keys: readonly string[];
  readonly #linkState: Disposable;
  #beat: Timer | undefined;

  constructor(options: RedisAuditOptions) {
    this.#options = options;
    const tag = `{${options.link.settings.keyPrefix}:audit}`;
    this.#keys = [`${tag}:events`, `${tag}:runs`, `${tag}:alive`, `${tag}:gaps`];
    this.#linkState = options.link.onState((state) => {
      if (state === "closed") this.onBack?.();
    });
  }

  async write(segment: AuditSegment): Promise<void> {
    await this.#append(
      segment.firstOrdinal,
      false,
      segment.events.map((event) => JSON.stringify(rowOf(event))),
    );
    this.#beat ??= this.#options.clock.after(BEAT_MS, () => this.#sayAlive());
  }

  async query(query: AuditQuery): Promise<Omit<AuditPage, "dropped">> {
    const up = query.afterSeq !== undefined;
    const found: AuditRecord[] = [];
    let from = up ? `${(query.afterSeq ?? 0) + 1}-0` : "+";
    let page = await this.#read(up, from);
    const { lastSeq, gaps } = page;
    for (;;) {
      for (const { seq, row } of page.entries) {
        if (found.length < query.limit && rowMatches(row, query)) found.push(recordOf(seq, row));
      }
      const last = page.entries.at(-1)?.seq;
      if (page.entries.length < PAGE_EVENTS || last === undefined || found.length >= query.limit) break;
      from = `${up ? last + 1 : last - 1}-0`;
      page = await this.#read(up, from);
    }
    return {
      records: up ? found : found.reverse(),
      lastSeq,
      gaps: gaps.filter(({ afterSeq }) => afterSeq >= (query.afterSeq ?? 0)),
    };
  }

  async end(lastOrdinal: number): Promise<void> {
    this.#beat?.cancel();
    await this.#append(lastOrdinal + 1, true, []);
  }

  hold(): void {} // The link's timers and sockets live as long as the gateway.

  abandon(): void {
    this.#beat?.cancel();
    this.#linkState[Symbol.dispose]();
  }

  /** A run of which nothing is heard is taken for one that was killed. */
  #sayAlive(): void {
    this.#beat = this.#options.clock.after(BEAT_MS, () => this.#sayAlive());
    void this.#append(1, false, []).catch(() => {});
  }

  async #append(firstOrdinal: number, ends: boolean, rows: readonly string[]): Promise<void> {
    const args = [this.#runId, firstOrdinal, this.#options.max, ends ? "1" : "0", ...rows];
    replyOf(await this.#options.link.run(APPEND, this.#keys, args, { timeoutMs: STEP_MS_MAX }));
  }

  async #read(
    up: boolean,
    from: string,
  ): Promise<{
    readonly lastSeq: number;
    readonly entries: readonly { readonly seq: number; readonly row: AuditRow }[];
    readonly gaps: readonly AuditGap[];
  }> {
    const args = [up ? "up" : "down", from, PAGE_EVENTS];
    const said = replyOf(await this.#options.link.run(READ, this.#keys, args, { timeoutMs: STEP_MS_MAX }));
    const [now, lastSeq, rows, dropped, runs] = itemsOf(said);
    const texts = itemsOf(rows).map(String);
    const entries = texts.flatMap((text, i) =>
      i % 2 === 0 ? [{ seq: Number(text), row: JSON.parse(texts[i + 1] ?? "[]") as AuditRow }] : [],
    );
    const gaps = [
      ...itemsOf(dropped).map((text) => readGap(String(text))),
      ...this.#silent(itemsOf(runs).map(String), Number(now)),
    ];
    return { lastSeq: Number(lastSeq), entries, gaps: gaps.toSorted((a, b) => a.afterSeq - b.afterSeq) };
  }

  /** Runs that did not close and are heard of no more. */
  #silent(runs: readonly string[], now: number): AuditGap[] {
    const gaps: AuditGap[] = [];
    for (let i = 0; i + 2 < runs.length; i += 3) {
      const [, afterSeq, began] = (runs[i + 1] ?? "").split("|");
      if (began === undefined || runs[i] === this.#runId || now - Number(runs[i + 2]) < SILENT_MS) continue;
      gaps.push({ afterSeq: Number(afterSeq), missing: null, why: "run_not_closed", time: Number(began) });
    }
    return gaps;
  }
}

function readGap(text: string): AuditGap {
  const [afterSeq, missing, time] = text.split("|").map(Number);
  return { afterSeq: afterSeq ?? 0, missing: missing ?? 0, why: "dropped", time: time ?? 0 };
}

function replyOf(outcome: StepOutcome): Reply {
  switch (outcome.kind) {
    case "reply":
      return outcome.reply;
    case "refused":
      throw new Error(outcome.message);
    default:
      throw new Error(`the server is away: ${outcome.why}`);
  }
}
