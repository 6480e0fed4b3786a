import { NO_CALL } from "../../contract/audit-event.ts";
import { MICROS } from "../../contract/money.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { ChainedEvent } from "../audit/chain/chained-event.ts";

/** What became of money that a tier was to have. */
export type MoneyOutcome = "money_committed" | "money_charged" | "money_freed" | "money_held" | "money_refused";

export interface MoneyWords {
  readonly subject: string;
  readonly keyId: string;
  readonly class: RequestClass;
  readonly model: string | null;
  readonly upstream: string;
  readonly tier: string;
  readonly micros: number;
  readonly currency: string;
  readonly why: string;
}

/** One event for each decision about money. */
export const moneyEvent = (clock: Clock, outcome: MoneyOutcome, words: MoneyWords): ChainedEvent => ({
  ...NO_CALL,
  chained: true,
  time: clock.wall(),
  requestId: words.subject,
  keyId: words.keyId,
  class: words.class,
  method: "POST",
  route: `/overflow/${words.upstream}/${words.tier}`,
  model: words.model,
  upstream: words.upstream,
  endpoint: null,
  status: outcome === "money_refused" ? 403 : 200,
  outcome,
  errorCode: null,
  totalMs: 0,
  overflow: `${words.tier}: ${showMoney(words.micros, words.currency)}${words.why === "" ? "" : `, ${words.why}`}`,
});

const showMoney = (micros: number, currency: string): string =>
  `${(micros / MICROS).toFixed(2)}${currency === "" ? "" : ` ${currency}`}`;
