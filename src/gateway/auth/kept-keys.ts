import type { KeyRing } from "../../access/key-ring.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import { loadStoredKeys, type KeyAdmin } from "./admin-keys.ts";
import { StoredKeys } from "./stored-keys.ts";

export interface KeptKeysOptions {
  readonly ring: KeyRing;
  readonly dataDir: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onStored: KeyAdmin["onStored"];
}

const REOPEN_MS = 2_000;

/** The stored keys of a gateway, read in at its start. While that fails it serves whoever has another key, and tries again. */
export class KeptKeys implements Disposable {
  readonly admin: KeyAdmin;
  readonly #log: Logger;
  #away = false;
  #retry: Timer | undefined;

  constructor({ ring, dataDir, clock, log, onStored }: KeptKeysOptions) {
    this.admin = { ring, stored: new StoredKeys(dataDir), clock, onStored };
    this.#log = log;
    this.#read();
  }

  /** Of a key that is in nobody's list it can't be said that it is wrong. */
  get away(): boolean {
    return this.#away;
  }

  [Symbol.dispose](): void {
    this.#retry?.cancel();
    this.admin.stored.close();
  }

  #read(): void {
    try {
      loadStoredKeys(this.admin);
      if (this.#away) this.#log.info("keys.store", { state: "back" });
      this.#away = false;
    } catch (error) {
      if (!this.#away) this.#log.warn("keys.store", { state: "away", message: messageOf(error) });
      this.#away = true;
      this.#retry = this.admin.clock.after(REOPEN_MS, () => this.#read());
    }
  }
}
