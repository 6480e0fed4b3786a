export interface TraceParent {
  /** 32 lower-case hex digits. */
  readonly traceId: string;
  /** 16 lower-case hex digits: the caller's span. */
  readonly parentId: string;
  readonly sampled: boolean;
}

const V00 = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;
/** A later version may append fields after another dash; the first four mean what they mean in version 00. */
const LATER = /^(?!00|ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/** Strictly by W3C Trace Context; undefined for everything else, and the trace then begins here. */
export function parseTraceparent(text: string | undefined): TraceParent | undefined {
  if (text === undefined || text.length > 512) return undefined;
  const match = V00.exec(text) ?? LATER.exec(text);
  if (match === null) return undefined;
  const [, traceId = "", parentId = "", flags = ""] = match;
  if (/^0+$/.test(traceId) || /^0+$/.test(parentId)) return undefined;
  return { traceId, parentId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}
