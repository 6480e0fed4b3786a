/**
 * Whether a request may come from where it says it comes. Browsers send what other pages make them send, with the person's cookie or from
 * the person's machine, and so a page elsewhere must be told apart from our own (statements C49, D34).
 */
export interface BrowserRequest {
  readonly method: string;
  readonly host: string | undefined;
  readonly origin: string | undefined;
  readonly secFetchSite: string | undefined;
  /** A cookie lets it in, which the browser adds by itself. */
  readonly byCookie: boolean;
}

export type BrowserVerdict =
  | { readonly kind: "ok" }
  | { readonly kind: "refused"; readonly code: "HOST_REFUSED" | "ORIGIN_REFUSED"; readonly why: string };

const OK: BrowserVerdict = { kind: "ok" };
const SAFE: ReadonlySet<string> = new Set(["GET", "HEAD"]);

/**
 * A name that a stranger's DNS can point here is refused. An address can't be pointed anywhere, so a page under it is ours.
 * `names`: those that the operator has listed, and the one that is listened on, in lower case.
 */
export function judgeHost(host: string | undefined, names: ReadonlySet<string>): BrowserVerdict {
  const name = nameOf(host);
  if (name !== null && (name === "localhost" || isAddress(name) || names.has(name))) return OK;
  const why = "this name is not one of the board's: add it to `control.board.hosts` if it is yours";
  return { kind: "refused", code: "HOST_REFUSED", why };
}

/** A page of another origin may change nothing, whatever it sends and whoever is signed in. */
export function judgeOrigin({ method, host, origin, secFetchSite, byCookie }: BrowserRequest): BrowserVerdict {
  if (SAFE.has(method)) return OK;
  const foreign: BrowserVerdict = {
    kind: "refused",
    code: "ORIGIN_REFUSED",
    why: "a page of another origin may change nothing here",
  };
  if (secFetchSite !== undefined && secFetchSite !== "same-origin") return foreign;
  if (origin !== undefined) return hostOf(origin) === host?.toLowerCase() ? OK : foreign;
  // `ctl` sends neither, and no cookie: a browser adds the cookie by itself, and then it says where the request is from.
  return byCookie && secFetchSite === undefined ? foreign : OK;
}

/** HOST[:PORT] of an origin; null for `null` and anything that is none. */
function hostOf(origin: string): string | null {
  const found = /^https?:\/\/([^/?#@]+)$/.exec(origin.toLowerCase());
  return found?.[1] ?? null;
}

/** Without its port. */
function nameOf(host: string | undefined): string | null {
  const found = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?$/.exec((host ?? "").toLowerCase());
  return found?.[1] ?? null;
}

const isAddress = (name: string): boolean => name.startsWith("[") || /^(?:[0-9]{1,3}\.){3}[0-9]{1,3}$/.test(name);
