import {
  BOOT_TTL_MS,
  WAITING_TTL_MS,
  type SlotAnswer,
  type SlotRequest,
} from "../../decide/coordination/slot-request.ts";
import type { SlotStore, StoreFailure } from "../slot-store.ts";
import { itemsOf, type Reply } from "./redis-connection.ts";
import type { RedisLink } from "./redis-link.ts";
import { allowingOutOfMemory, loadScript } from "./script.ts";
import { answerOf } from "./step-answer.ts";
import type { RedisSubscriber } from "./subscriber.ts";

const SLOTS = loadScript(new URL("./slots.lua", import.meta.url));
/** The same, also when the memory is full: for requests that only give back and renew. */
const GIVE_BACK = allowingOutOfMemory(SLOTS, "slots-give-back");

/** Twice the longest lease that the configuration allows. */
const KEY_TTL_MS = 7_200_000;

/** The slots of upstreams in Redis. The keys of one upstream share a hash tag, so a cluster keeps them on one node. */
export class RedisSlots implements SlotStore {
  readonly #link: RedisLink;
  readonly #subscriber: RedisSubscriber;

  constructor(link: RedisLink, subscriber: RedisSubscriber) {
    this.#link = link;
    this.#subscriber = subscriber;
  }

  async ask(upstream: string, request: SlotRequest, evenIfAway: boolean): Promise<SlotAnswer | StoreFailure> {
    const tag = this.#tag(upstream);
    const keys = [`${tag}:leases`, `${tag}:batch`, `${tag}:waiting`, `${tag}:boot`, `${tag}:gateways`];
    for (const { token } of request.endpoints) keys.push(`${tag}:at:${token}`);
    const asksNothing = request.wants.length === 0 && request.waiting.every(({ count }) => count === 0);
    const outcome = await this.#link.run(
      asksNothing ? GIVE_BACK : SLOTS,
      keys,
      [JSON.stringify(wireForm(request)), `${tag}:free`],
      { evenIfOpen: evenIfAway },
    );
    return answerOf(outcome, readReply);
  }

  onFree(upstream: string, gateway: string, listener: () => void): Disposable {
    return this.#subscriber.listen(`${this.#tag(upstream)}:free`, {
      onMessage: (names) => {
        if (names.split(",").includes(gateway)) listener();
      },
      onListening: listener,
    });
  }

  #tag(upstream: string): string {
    return `{${this.#link.settings.keyPrefix}:${upstream}}`;
  }
}

/** Lists in place of objects where there are many: the script reads each of these texts whole. */
const wireForm = (request: SlotRequest): object => ({
  ...request,
  keyTtlMs: KEY_TTL_MS,
  bootTtlMs: BOOT_TTL_MS,
  waitingTtlMs: WAITING_TTL_MS,
  release: request.release.map(({ id, endpoints }) => [id, ...endpoints]),
  renew: request.renew.map(({ id, batch, endpoint, movedFrom }) => [id, batch ? 1 : 0, endpoint, movedFrom]),
  wants: request.wants.map(({ id, rank, goesFirst, endpoints }) => [id, rank, goesFirst ? 1 : 0, ...endpoints]),
});

const numbers = (reply: Reply | undefined): number[] => itemsOf(reply).map(Number);
const pick = <T>(values: readonly T[], fallback: T): readonly [T, T, T] => [
  values[0] ?? fallback,
  values[1] ?? fallback,
  values[2] ?? fallback,
];

function readReply(reply: Reply): SlotAnswer | undefined {
  const [kind, time, boot, age, inUse, batchInUse, at, granted, lost, crowded, gateways, here] = itemsOf(reply);
  const now = Number(time);
  if (!Number.isFinite(now)) return undefined;
  if (kind === "late") return { kind, now };
  if (kind === "reset") return { kind, now, boot: String(boot) };
  if (kind !== "done") return undefined;
  const grants = itemsOf(granted);
  return {
    kind,
    now,
    boot: String(boot),
    bootAgeMs: Number(age),
    inUse: Number(inUse),
    batchInUse: Number(batchInUse),
    endpointsInUse: numbers(at),
    granted: grants.flatMap((id, i) => (i % 2 === 0 ? [{ id: String(id), endpoint: Number(grants[i + 1]) }] : [])),
    lost: itemsOf(lost).map(String),
    crowded: pick(
      numbers(crowded).map((flag) => flag === 1),
      false,
    ),
    waitingGateways: pick(numbers(gateways), 0),
    here: Number(here),
  };
}
