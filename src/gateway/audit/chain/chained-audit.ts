import type { ChainStore } from "../../../audit/audit-chain.ts";
import { ChainWriter } from "../../../audit/chain-writer.ts";
import type { AuditEvent } from "../../../contract/audit-event.ts";
import type { Clock } from "../../../kernel/clock.ts";
import type { Logger } from "../../../kernel/log.ts";
import type { Signer } from "../../../kernel/signer.ts";
import type { AuditSink } from "../audit-sink.ts";
import { entryOf, isChained } from "./chained-event.ts";

export interface ChainedAuditDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly inner: AuditSink;
  readonly chain: ChainStore;
  readonly signer: () => Promise<Signer>;
}

const COMMIT_MS_MAX = 2_000;

/** An audit whose events about administrators and money stand in a chain besides: what is committed is stored in both when it resolves. */
export class ChainedAudit implements AuditSink {
  readonly query: AuditSink["query"];
  readonly stats: AuditSink["stats"];
  readonly #inner: AuditSink;
  readonly #writer: ChainWriter;

  constructor({ inner, ...deps }: ChainedAuditDeps) {
    this.#inner = inner;
    const effect = "nothing is spent and no administrator changes anything";
    this.#writer = new ChainWriter({ ...deps, commitMsMax: COMMIT_MS_MAX, effect });
    this.query = (query) => inner.query(query);
    this.stats = () => inner.stats();
  }

  record(event: AuditEvent): void {
    this.#inner.record(event);
    if (isChained(event)) this.#writer.record((pseudonym) => entryOf(event, pseudonym));
  }

  async commit(event: AuditEvent): Promise<void> {
    if (!isChained(event)) return this.#inner.commit(event);
    this.#writer.check();
    await this.#inner.commit(event);
    return this.#writer.commit((pseudonym) => entryOf(event, pseudonym));
  }

  async close(): Promise<void> {
    await this.#writer.close();
    await this.#inner.close();
  }
}
