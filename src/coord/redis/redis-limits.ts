import type { KeyLimits } from "../../contract/gateway-config.ts";
import type { KeyAnswer, KeyEntry } from "../../decide/limits/key-account.ts";
import { LIMIT_NAMES, limitOf, type Piece } from "../../decide/limits/key-limits.ts";
import type { LimitAnswer, LimitRequest, LimitStore } from "../limits/limit-store.ts";
import { itemsOf, type Reply } from "./redis-connection.ts";
import type { RedisLink, StepOutcome } from "./redis-link.ts";
import { allowingOutOfMemory, loadScript } from "./script.ts";
import { answerOf } from "./step-answer.ts";

const LIMITS = loadScript(new URL("./limits.lua", import.meta.url));
/** The same, also when the memory is full: for requests that tell, renew and give back. */
const TELL = allowingOutOfMemory(LIMITS, "limits-tell");

/** Longer than any month. */
const KEY_TTL_MS = 40 * 86_400_000;
/** A gateway that has told nothing for so long tells nothing again. */
const SEQ_TTL_MS = 86_400_000;

/** The counts of keys in Redis, shared by all gateways of one `key_prefix`. All of it has one hash tag, so a cluster keeps it on one node. */
export class RedisLimits implements LimitStore {
  readonly kind = "redis";
  readonly #link: RedisLink;
  readonly #tag: string;

  constructor(link: RedisLink) {
    this.#link = link;
    this.#tag = `{${link.settings.keyPrefix}:limits}`;
  }

  ask(request: LimitRequest, done: (answer: LimitAnswer) => void): void {
    const keys = [`${this.#tag}:told:${request.gateway}`];
    for (const { keyId } of request.entries) keys.push(`${this.#tag}:account:${keyId}`, `${this.#tag}:flight:${keyId}`);
    const wants = request.entries.some(({ want }) => want !== null);
    const step = this.#link.run(wants ? LIMITS : TELL, keys, [JSON.stringify(wireForm(request))], {
      // Somebody waits for it, and will wait for a slot after it: a server that stands still costs less than one deadline more.
      timeoutMs: wants ? this.#link.settings.timeoutMs / 2 : this.#link.settings.timeoutMs,
    });
    void this.#pass(step, done);
  }

  async #pass(step: Promise<StepOutcome>, done: (answer: LimitAnswer) => void): Promise<void> {
    done(answerOf(await step, readReply));
  }
}

const wireForm = ({ notAfter, seq, ttlMs, nonce, entries }: LimitRequest): object => ({
  notAfter,
  seq,
  ttlMs,
  nonce,
  keyTtlMs: KEY_TTL_MS,
  seqTtlMs: SEQ_TTL_MS,
  entries: entries.map((entry) => wireEntry(entry)),
});

const wireEntry = ({ boot, floors, pieces, days, months, release, renew, want }: KeyEntry): object => ({
  boot,
  floors: {
    day: floors.day,
    dt: floors.dayTokens,
    dc: floors.dayMicros,
    month: floors.month,
    mc: floors.monthMicros,
  },
  pieces,
  days,
  months,
  release,
  renew,
  want: want === null ? false : { id: want.id, limits: wireLimits(want.limits), ...want.amount },
});

const wireLimits = (limits: KeyLimits): number[] => LIMIT_NAMES.map((name) => limitOf[name](limits) ?? -1);

function readReply(reply: Reply): LimitAnswer | undefined {
  const [kind, time, keys] = itemsOf(reply);
  const now = Number(time);
  if (!Number.isFinite(now)) return undefined;
  if (kind === "late") return { kind, now };
  return kind === "done" ? { kind, now, keys: itemsOf(keys).map(readKey) } : undefined;
}

function readKey(reply: Reply): KeyAnswer {
  const [boot, granted, inFlight, dayTokens, dayMicros, monthMicros, ...rest] = itemsOf(reply).map(String);
  const pieces: Piece[] = [];
  for (let i = 0; i + 2 < rest.length; i += 3)
    pieces.push({ piece: Number(rest[i]), requests: Number(rest[i + 1]), tokens: Number(rest[i + 2]) });
  return {
    boot: boot ?? "",
    granted: granted === "1",
    use: {
      inFlight: Number(inFlight),
      pieces,
      dayTokens: Number(dayTokens),
      dayMicros: Number(dayMicros),
      monthMicros: Number(monthMicros),
    },
  };
}
