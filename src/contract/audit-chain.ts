/**
 * What an administrator did and what was decided about money, one line each in a chain: every line holds the hash of the one before it, and is
 * signed. `decide/audit/chain-lines.ts` makes and checks the lines.
 */
export interface ChainEntry {
  /** Epoch milliseconds. */
  readonly time: number;
  readonly request: string;
  /** Whose key it was, as `hmac:…`: only who has the signing secret can tell. Null: nobody's. */
  readonly who: string | null;
  /** The address that it was asked from, where a control plane was asked; null: nobody asked. */
  readonly from?: string | null;
  /** Method and path, with the id of what was changed. */
  readonly act: string;
  readonly upstream: string | null;
  readonly status: number;
  readonly outcome: string;
  readonly code: string | null;
  /** Of money: the tier, how much, and why. */
  readonly detail: string | null;
}

/** Answer of `GET /admin/audit/chain` of a gateway, and of `GET /v1/audit/chain` of a control plane. */
export interface ChainPage {
  readonly lines: readonly string[];
  /** The last sequence number of the page; null where there is no line. */
  readonly last: number | null;
  /** A signed line that says where the chain ends; null while there is more to read. */
  readonly seal: string | null;
}

export const CHAIN_PAGE_LINES_MAX = 5_000;
export const SIGNING_KEY_FILE = "signing.key";
/** A signing secret in the environment has at least so many characters. */
export const SIGNING_SECRET_CHARS_MIN = 32;
