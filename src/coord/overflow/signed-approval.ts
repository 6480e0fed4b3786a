import type { Approval } from "../../decide/overflow/ledger-book.ts";
import type { Signature, Signer } from "../../kernel/signer.ts";

/**
 * An approval as it is stored: signed with all that it says, its state too, so that who can write the store still can't approve anything,
 * raise a price or make a used one new.
 */
export const writeApproval = (approval: Approval, signer: Signer): string =>
  JSON.stringify({ ...approval, signature: signer.sign("approval", textOf(approval)) });

/** What is no approval as it was signed is a forged one, and what can be read of it. Throws for what is no JSON. */
export function readApproval(doc: string, signer: Signer): Approval {
  const stored = JSON.parse(doc) as (Approval & { readonly signature?: Partial<Signature> | null }) | null;
  const { signature, ...approval } = stored ?? ({} as Partial<Approval> & { readonly signature?: null });
  const { key, mac } = signature ?? {};
  const good =
    typeof key === "string" &&
    typeof mac === "string" &&
    signer.verify("approval", textOf(approval as Approval), { key, mac });
  return good ? (approval as Approval) : forged(approval);
}

/** Anything may stand in it. */
const forged = (stored: Partial<Record<keyof Approval, unknown>>): Approval => ({
  tier: textIn(stored.tier),
  subject: textIn(stored.subject),
  hash: textIn(stored.hash),
  provider: textIn(stored.provider),
  maxMicros: numberIn(stored.maxMicros),
  currency: textIn(stored.currency),
  by: textIn(stored.by),
  at: numberIn(stored.at),
  expiresAt: numberIn(stored.expiresAt),
  state: "forged",
  reservation: typeof stored.reservation === "string" ? stored.reservation : null,
});

/** Of what can be a time, and so of what can be shown. */
const NUMBER_MAX = 8.64e15;
const textIn = (value: unknown): string => (typeof value === "string" ? value : "");
const numberIn = (value: unknown): number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0 && value <= NUMBER_MAX ? value : 0;

const textOf = (approval: Approval): string =>
  JSON.stringify([
    approval.tier,
    approval.subject,
    approval.hash,
    approval.provider,
    approval.maxMicros,
    approval.currency,
    approval.by,
    approval.at,
    approval.expiresAt,
    approval.state,
    approval.reservation,
  ]);
