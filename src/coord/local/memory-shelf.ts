import { replyBytes, type Reply } from "../../contract/reply.ts";
import { Shelf } from "../../decide/replay/shelf.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { ReplyStoreStats } from "../reply-store.ts";
import type { ReplyShelf, ShelvedReply } from "./local-replies.ts";

interface Kept {
  readonly fingerprint: string;
  readonly reply: Reply;
}

/** Answers in this process's memory, gone with it. */
export class MemoryShelf implements ReplyShelf {
  readonly #shelf: Shelf<Kept>;
  readonly #clock: Clock;

  constructor(bytesMax: number, clock: Clock) {
    this.#shelf = new Shelf(bytesMax);
    this.#clock = clock;
  }

  get(key: string): Promise<ShelvedReply | null> {
    const found = this.#shelf.get(key, this.#clock.mono());
    return Promise.resolve(found === undefined ? null : { ...found.value, ageMs: found.ageMs });
  }

  put(key: string, fingerprint: string, reply: Reply, ttlMs: number): Promise<boolean> {
    return Promise.resolve(this.#shelf.put(key, { fingerprint, reply }, replyBytes(reply), this.#clock.mono(), ttlMs));
  }

  setBytesMax(bytesMax: number): void {
    this.#shelf.setBytesMax(bytesMax);
  }

  stats(): ReplyStoreStats {
    return { entries: this.#shelf.entries, bytes: this.#shelf.bytes, evicted: this.#shelf.evicted };
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
