import type { Approval } from "../../decide/overflow/ledger-book.ts";
import type { Signature, Signer } from "../../kernel/signer.ts";

/**
 * An approval as it is stored: signed with all that it says, its state too, so that who can write the store still can't approve anything,
 * raise a price or make a used one new.
 */
export const writeApproval = (approval: Approval, signer: Signer): string =>
  JSON.stringify({ ...approval, signature: signer.sign("approval", textOf(approval)) });

/** Never throws: what is no approval as it was signed is a forged one. */
export function readApproval(doc: string, signer: Signer): Approval {
  const { signature, ...approval } = JSON.parse(doc) as Approval & { readonly signature?: Partial<Signature> };
  const { key, mac } = signature ?? {};
  const good =
    typeof key === "string" && typeof mac === "string" && signer.verify("approval", textOf(approval), { key, mac });
  return good ? approval : { ...approval, state: "forged" };
}

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
