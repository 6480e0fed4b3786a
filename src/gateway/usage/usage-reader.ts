import type { RequestKey } from "../../access/request-key.ts";
import { formatDay, USAGE_CURSOR_HEADER, usageCsv, type UsageView } from "../../contract/usage-view.ts";
import type { UsageMeter } from "../../coord/usage/usage-meter.ts";
import type { UsagePlaceRead, UsageStore } from "../../coord/usage/usage-store.ts";
import { parseUsageQuery, renderCursor, type UsageQuery } from "../../decide/usage/parse-usage-query.ts";
import { UsageTotals } from "../../decide/usage/sum-usage.ts";
import type { Clock } from "../../kernel/clock.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";

export interface UsageReaderDeps {
  readonly clock: Clock;
  readonly store: UsageStore;
  readonly meter: UsageMeter;
}

export interface UsageAnswer {
  readonly type: string;
  readonly text: string;
  /** A flat list. */
  readonly headers: readonly string[];
}

/** What this gateway has counted and not written is written first; who asks waits no longer than this for it. */
const SETTLE_MS = 1_000;
const READ_MS_MAX = 10_000;
/** Rows of a store that one answer is made of. */
const ROWS_MAX = 500_000;

/** Answers `GET /usage`: what keys have used, added up as is asked for. */
export class UsageReader {
  readonly #deps: UsageReaderDeps;

  constructor(deps: UsageReaderDeps) {
    this.#deps = deps;
  }

  /** A client's key is shown its own usage alone. Rejects with BAD_REQUEST, FORBIDDEN or USAGE_UNAVAILABLE. */
  async answer(params: URLSearchParams, { id, role }: Pick<RequestKey, "id" | "role">): Promise<UsageAnswer> {
    const parsed = parseUsageQuery(params, this.#deps.clock.wall());
    if (parsed.kind === "bad") throw new YardmasterError("BAD_REQUEST", parsed.why);
    const { query } = parsed;
    if (role !== "client") return render(await this.#read(query), query);
    if (query.keyId !== null && query.keyId !== id)
      throw new YardmasterError("FORBIDDEN", "a client's key is shown its own usage alone");
    return render(await this.#read({ ...query, keyId: id }), query);
  }

  async #read({ fromDay, toDay, keyId, model, group, limit, after }: UsageQuery): Promise<UsageView> {
    const { meter } = this.#deps;
    await meter.settle(SETTLE_MS);
    const totals = new UsageTotals(group);
    await this.#addAll({ fromDay, toDay, keyId }, model, totals);
    const { rows, more } = totals.page(after, limit);
    const store = await orUnavailable(() => this.#deps.store.id());
    return {
      from: formatDay(fromDay),
      to: formatDay(toDay),
      group: [...group],
      rows,
      total: totals.total,
      next_cursor: more === null ? null : renderCursor(more),
      unwritten: meter.unwritten,
      store,
    };
  }

  /** Piece by piece, with the event loop's other work between. */
  async #addAll(ask: Parameters<UsageStore["read"]>[0], model: string | null, totals: UsageTotals): Promise<void> {
    const { clock } = this.#deps;
    const until = clock.mono() + READ_MS_MAX;
    let after: UsagePlaceRead | null = null;
    let read = 0;
    do {
      const piece = await this.#piece(ask, after);
      read += piece.rows.length;
      for (const row of piece.rows) if ((model === null || row.model === model) && !totals.add(row)) throw tooMuch();
      if (read > ROWS_MAX || clock.mono() > until) throw tooMuch();
      after = piece.next;
    } while (after !== null);
  }

  #piece(...asked: Parameters<UsageStore["read"]>): ReturnType<UsageStore["read"]> {
    return orUnavailable(() => this.#deps.store.read(...asked));
  }
}

async function orUnavailable<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw new YardmasterError("USAGE_UNAVAILABLE", `what keys have used can't be read: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

const tooMuch = (): YardmasterError =>
  new YardmasterError(
    "BAD_REQUEST",
    "there is more than one answer can be made of: ask for fewer days, one key, or a coarser group",
  );

function render(view: UsageView, { format, group }: UsageQuery): UsageAnswer {
  if (format === "json") return { type: "application/json", text: `${JSON.stringify(view)}\n`, headers: [] };
  const { next_cursor } = view;
  return {
    type: "text/csv; charset=utf-8",
    text: usageCsv(group, view),
    headers: [
      "content-disposition",
      'attachment; filename="usage.csv"',
      ...(next_cursor === null ? [] : [USAGE_CURSOR_HEADER, next_cursor]),
    ],
  };
}
