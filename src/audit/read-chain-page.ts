import { CHAIN_PAGE_LINES_MAX, type ChainPage } from "../contract/audit-chain.ts";
import { messageOf, YardmasterError } from "../kernel/errors.ts";
import type { ChainStore } from "./audit-chain.ts";

const PARAMS = ["after_seq", "limit", "first"] as const;

/** `GET /admin/audit/chain`: lines after a number, and the seal where the chain ends. */
export async function readChainPage(chain: ChainStore, params: URLSearchParams): Promise<ChainPage> {
  for (const name of params.keys())
    if (!PARAMS.some((known) => known === name)) throw bad(`unknown parameter; the chain takes ${PARAMS.join(", ")}`);
  const after = numberIn(params, "after_seq") ?? 0;
  const limit = numberIn(params, "limit") ?? CHAIN_PAGE_LINES_MAX;
  const first = numberIn(params, "first");
  if (limit < 1 || limit > CHAIN_PAGE_LINES_MAX) throw bad(`limit must be 1 to ${CHAIN_PAGE_LINES_MAX}`);
  try {
    return await chain.page(after, limit, first);
  } catch (error) {
    throw new YardmasterError("AUDIT_UNAVAILABLE", `the audit's chain can't be read: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

function numberIn(params: URLSearchParams, name: (typeof PARAMS)[number]): number | null {
  const given = params.getAll(name);
  const [text] = given;
  if (text === undefined) return null;
  if (given.length > 1 || !/^\d{1,15}$/.test(text)) throw bad(`${name} must be one number`);
  return Number(text);
}

const bad = (why: string): YardmasterError => new YardmasterError("BAD_REQUEST", why);
