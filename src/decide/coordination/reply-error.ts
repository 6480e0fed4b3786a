/**
 * What an error reply of the store means for who asked.
 *
 *   outOfMemory  nothing that needs memory is taken; what frees memory still works
 *   readOnly     a replica, or a primary that stopped writing
 *   loading      it has just started and reads its data
 *   moved        a cluster node that does not hold the key
 *   noScript     the script is not in its cache: send it whole
 *   denied       the user may not do this
 *   busy         another script blocks it
 *   other        anything else
 */
export type ReplyErrorKind =
  | "outOfMemory"
  | "readOnly"
  | "loading"
  | "moved"
  | "noScript"
  | "denied"
  | "busy"
  | "other";

const BY_CODE: Readonly<Record<string, ReplyErrorKind>> = {
  OOM: "outOfMemory",
  READONLY: "readOnly",
  MISCONF: "readOnly",
  NOREPLICAS: "readOnly",
  LOADING: "loading",
  MASTERDOWN: "loading",
  MOVED: "moved",
  ASK: "moved",
  CROSSSLOT: "moved",
  TRYAGAIN: "moved",
  CLUSTERDOWN: "moved",
  NOSCRIPT: "noScript",
  NOPERM: "denied",
  NOAUTH: "denied",
  WRONGPASS: "denied",
  BUSY: "busy",
};

/** By the reply's first word. An error inside a script names the error of the command that failed as its own first word. */
export function replyErrorKind(message: string): ReplyErrorKind {
  const code = /^-?([A-Z]+)\b/.exec(message)?.[1] ?? "";
  if (Object.hasOwn(BY_CODE, code)) return BY_CODE[code] ?? "other";
  return /ACL failure|has no permissions/i.test(message) ? "denied" : "other";
}
