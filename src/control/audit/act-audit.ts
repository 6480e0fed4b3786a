import { type ChainStore, openChain } from "../../audit/audit-chain.ts";
import { ChainWriter, type MakeEntry } from "../../audit/chain-writer.ts";
import { lazySigner } from "../../audit/open-signer.ts";
import { readChainPage } from "../../audit/read-chain-page.ts";
import type { ChainEntry } from "../../contract/audit-chain.ts";
import type { NewEvent } from "../../contract/control-event.ts";
import type { Clock } from "../../kernel/clock.ts";
import { ERRORS, type ErrorCode, YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Secret } from "../../kernel/secret.ts";
import { type Answer, json } from "../api/answer.ts";
import type { ApiRequest } from "../api/api-server.ts";

export interface ActAuditPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly dataDir: string;
  /** What the chain is signed with; null: a secret of the data folder. */
  readonly secrets: readonly Secret[] | null;
}

/** A request that may change something. */
export interface ActRequest extends ApiRequest {
  /**
   * That it was asked for, with `detail`, is on record when it resolves; only then it may be done.
   * @throws AUDIT_UNAVAILABLE: then it may not.
   */
  readonly onRecord: OnRecord;
  /** For what only takes a permission away: as `onRecord`, but where the record can't be written now it is later, and the act is done. */
  readonly onRecordOrLater: () => Promise<void>;
}

export type OnRecord = (detail: string | null, status?: number) => Promise<void>;

const COMMIT_MS_MAX = 2_000;
const TEXT_CHARS_MAX = 2_000;
const FILE_ACT = "FILE catalog";

/**
 * What operators do at a control plane, one entry each in the signed chain of its data folder.
 *
 * Invariants:
 *   A1. Nothing is done whose entry is not on the disk: a full one refuses acts, and neither passes nor the lead know of it. Only a
 *       credential is taken away without, so that nobody keeps one alive by filling the disk; its entry is written once it can be.
 *   A2. What was on record and came to nothing, or may have, has a second entry of the same request that says so.
 */
export class ActAudit {
  readonly #clock: Clock;
  readonly #chain: ChainStore;
  readonly #writer: ChainWriter;

  constructor({ clock, log, dataDir, secrets }: ActAuditPorts) {
    const signer = lazySigner(dataDir, secrets);
    this.#clock = clock;
    this.#chain = openChain({ clock, dataDir, signer });
    const effect = "what operators ask for is refused, and a changed catalog file waits";
    this.#writer = new ChainWriter({ clock, log, chain: this.#chain, signer, commitMsMax: COMMIT_MS_MAX, effect });
    // So that the first act need not wait for the thread and the file; where that fails, the act is told.
    this.#chain.page(0, 1, null).catch(() => {});
  }

  /** Answers a request, which is an act if it is put on record. */
  async act(request: ApiRequest, answer: (act: ActRequest) => Promise<Answer>): Promise<Answer> {
    let asked: Asked | null = null;
    const begin = (detail: string | null, status: number): MakeEntry => {
      asked = { request, time: this.#clock.wall(), detail };
      return entryOf(asked, { status, outcome: "ok", code: null });
    };
    const onRecord: OnRecord = (detail, status = 200) => this.#writer.commit(begin(detail, status));
    const onRecordOrLater = (): Promise<void> => {
      const entry = begin(null, 200);
      return this.#writer.commit(entry).catch(() => this.#writer.record(entry));
    };
    try {
      return await answer({ ...request, onRecord, onRecordOrLater });
    } catch (error) {
      if (asked !== null) this.#writer.record(entryOf(asked, endOf(error)));
      throw error;
    }
  }

  /** The same for a change of the catalog's file, which nobody asked for by a request. */
  async file<T>(save: (onRecord: OnRecord) => Promise<T>): Promise<T> {
    let asked: Asked | null = null;
    try {
      return await save(async (detail) => {
        const next = { request: null, time: this.#clock.wall(), detail };
        // It is tried again and again: what could not even be put on record is told once it is.
        await this.#writer.commit(entryOf(next, { status: 200, outcome: "ok", code: null }));
        asked = next;
      });
    } catch (error) {
      if (asked !== null) this.#writer.record(entryOf(asked, endOf(error)));
      throw error;
    }
  }

  /** What a control plane did by itself that operators have to answer for. Waits while the chain is away. */
  note({ kind, why }: NewEvent): void {
    this.#writer.record(() => ({ ...BY_ITSELF, time: Math.round(this.#clock.wall()), act: kind, detail: why }));
  }

  async page(query: URLSearchParams): Promise<Answer> {
    return json(await readChainPage(this.#chain, query));
  }

  close(): Promise<void> {
    return this.#writer.close();
  }
}

interface Asked {
  readonly request: ApiRequest | null;
  readonly time: number;
  readonly detail: string | null;
}

type End = Pick<ChainEntry, "status" | "outcome" | "code">;

/** By these it is not known whether it was done. */
const UNKNOWN: ReadonlySet<ErrorCode> = new Set(["STORE_UNAVAILABLE", "INTERNAL"]);

function endOf(error: unknown): End {
  const code = error instanceof YardmasterError ? error.code : "INTERNAL";
  return { status: ERRORS[code].http, outcome: UNKNOWN.has(code) ? "unknown" : "refused", code };
}

const BY_ITSELF = {
  request: "-",
  who: null,
  from: null,
  upstream: null,
  status: 200,
  outcome: "ok",
  code: null,
} as const;

const entryOf =
  ({ request, time, detail }: Asked, end: End): MakeEntry =>
  (pseudonym) => ({
    time: Math.round(time),
    request: request?.requestId ?? "-",
    who: request === null ? null : pseudonym(request.keyId),
    from: request?.from ?? null,
    act: (request === null ? FILE_ACT : actOf(request)).slice(0, TEXT_CHARS_MAX),
    upstream: null,
    ...end,
    detail: detail?.slice(0, TEXT_CHARS_MAX) ?? null,
  });

const actOf = ({ req, route, rest }: ApiRequest): string =>
  `${req.method ?? ""} ${route.pattern.replace("*", () => rest)}`;
