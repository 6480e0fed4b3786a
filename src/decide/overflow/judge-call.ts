import type { AuditEvent } from "../../contract/audit-event.ts";
import type { ProviderPrice } from "../../contract/provider-settings.ts";
import type { RetryCause } from "../routing/retry-policy.ts";
import { chargeFor } from "./providers/price-quote.ts";

/** What is known of the money of a chat that went to a tier. */
export type CallMoney =
  | { readonly kind: "free"; readonly why: string }
  /** Null: at what was reserved, which it can't exceed. */
  | { readonly kind: "charged"; readonly micros: number | null }
  /** Nobody can say whether it was taken. */
  | { readonly kind: "unknown"; readonly why: string };

export interface FailedCallVerdict {
  readonly money: Exclude<CallMoney, { kind: "charged" }>;
  /** The own upstream may be asked now: the tier is certainly not at work on it any more, or costs nothing. */
  readonly goesOn: boolean;
  /** It says something of the tier, and not of the request. */
  readonly tiersFault: boolean;
  /** The tier refuses the account: whoever asks next would be told the same. */
  readonly refusesAccount: boolean;
}

/** Answers that say something of the tier: its account, its load, its own health. The same request may be good elsewhere. */
const OF_THE_TIER: ReadonlySet<number> = new Set([401, 402, 403, 404, 408, 429]);
/** A bad key, and no money. */
const OF_THE_ACCOUNT: ReadonlySet<number> = new Set([401, 402, 403]);
/** After these nobody knows whether the work was done; the other refusals come before any work. */
const AFTER_WORK_MAYBE: ReadonlySet<number> = new Set([408, 409]);

/** For a try of which the client has seen nothing. */
export function judgeFailedCall(cause: RetryCause, isPaid: boolean): FailedCallVerdict {
  const verdict = (certain: string | null, goesOn: boolean, tiersFault: boolean): FailedCallVerdict => ({
    money:
      certain !== null || !isPaid
        ? { kind: "free", why: certain ?? "the tier charges nothing" }
        : { kind: "unknown", why: whyUnknown(cause) },
    goesOn: goesOn || !isPaid,
    tiersFault,
    refusesAccount: cause.kind === "status" && (OF_THE_ACCOUNT.has(cause.status) || cause.error === "noMoney"),
  });
  if (cause.kind === "transport")
    return cause.failure === "connect"
      ? verdict("the tier can't be connected to", true, true)
      : verdict(null, false, true);
  if (cause.kind === "stalled") return verdict(null, false, true);
  // An empty or senseless answer, or one that begins with an error, has ended: nobody is at work any more.
  if (cause.kind !== "status") return verdict(null, true, true);
  const { status } = cause;
  const refused = (status < 500 && !AFTER_WORK_MAYBE.has(status)) || status === 503;
  const tiersFault = status >= 500 || OF_THE_TIER.has(status);
  const certain = refused ? `the tier answered ${status}${ofAccount(cause)}` : null;
  // What is wrong with the request itself is told once, and is wrong everywhere.
  return tiersFault ? verdict(certain, true, true) : { ...verdict(certain, false, false), goesOn: false };
}

const ofAccount = ({ status, error }: Extract<RetryCause, { kind: "status" }>): string =>
  status === 402 || error === "noMoney"
    ? ": its account has no money left"
    : OF_THE_ACCOUNT.has(status)
      ? ": it refuses the key"
      : "";

function whyUnknown(cause: RetryCause): string {
  if (cause.kind === "status") return `the tier answered ${cause.status}`;
  return cause.kind === "transport"
    ? `the tier's answer was lost (${cause.failure})`
    : `the tier's answer: ${cause.kind}`;
}

/** For a call that ended by itself. What began to answer was taken, and costs no more than what was reserved. */
export function judgeEndedCall(
  event: Pick<AuditEvent, "outcome" | "attempts" | "firstByteMs" | "promptTokens" | "completionTokens" | "status">,
  price: ProviderPrice | null,
): CallMoney {
  const { outcome, attempts, firstByteMs, promptTokens, completionTokens } = event;
  if (attempts === 0) return { kind: "free", why: "no call was made" };
  if (price === null) return { kind: "charged", micros: 0 };
  if (outcome === "ok") {
    if (price.unit === "call") return { kind: "charged", micros: price.micros };
    if (promptTokens === null || completionTokens === null) return { kind: "charged", micros: null };
    return { kind: "charged", micros: chargeFor(price, promptTokens + completionTokens) ?? null };
  }
  const leftByClient = outcome === "client_aborted" || outcome === "client_stalled";
  return firstByteMs !== null || leftByClient
    ? { kind: "charged", micros: null }
    : { kind: "unknown", why: "the tier did not answer in time" };
}
