/**
 * What an XID says about the card.
 *   `ignore`   the application's fault, or a note: the card is as good as before.
 *   `drain`    the card needs a reset.
 *   `isolate`  the card is unusable. Either returns when the gauge reads 0 again, or an operator says so; that the code is merely no
 *              longer told is not enough.
 *   `warn`     nobody knows: shown, not acted upon.
 */
export type XidClass = "ignore" | "drain" | "isolate" | "warn";

/** By NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors); the buckets are its "immediate action", in our three classes. */
const TABLE: readonly (readonly [XidClass, readonly (number | readonly [number, number])[]])[] = [
  // RESTART_APP, CHECK_APP: a command stream, an address or a channel of the application was wrong.
  ["ignore", [8, 11, 13, 25, 31, 32, 43, 45, 69, 80]],
  ["ignore", [[39, 41], [70, 72], [75, 77], 85, [126, 135], 60, 68, [82, 84], 86, 88, 89, [96, 105], 108, 137, 139]],
  // IGNORE: notes of the driver, and repairs that worked (63 a row remapped, 94 an error that stayed with its application).
  ["ignore", [37, 38, 44, 63, 66, 67, 92, 93, 94, 106, 107, 121, 141, 152, 153, 157, 160, 161]],
  // CHECK_UVM, UPDATE_SWFW: software around the card.
  ["ignore", [78, 159]],
  // RESET_GPU, and 74 (WORKFLOW_NVLINK_ERR), after which shards of one model may no longer reach each other.
  ["drain", [46, 62, 74, 109, 110, 120, 136, 140, 143, 155, 156, 158]],
  // 48 and 95 memory that lies, 64 no row left to remap to, 54 no power, 79 off the bus, 119 the card's own processor is mute.
  ["isolate", [48, 54, 64, 79, 95, 119]],
];

const CLASS_OF: ReadonlyMap<number, XidClass> = new Map(
  TABLE.flatMap(([xidClass, codes]) =>
    codes.flatMap((code): (readonly [number, XidClass])[] =>
      typeof code === "number"
        ? [[code, xidClass]]
        : Array.from({ length: code[1] - code[0] + 1 }, (_, step) => [code[0] + step, xidClass]),
    ),
  ),
);

/** Where NVIDIA's own health check and catalogue disagree (109: fault of an application, or a reset), one occurrence is none. */
const ONLY_REPEATED: ReadonlySet<number> = new Set([109]);
/** Occurrences that are further apart than this are no repetition. */
export const REPEAT_MS = 24 * 3_600_000;

/** `times`: how often it was seen to come within `REPEAT_MS`, this time included. `overrides` count as they are written. */
export function classOfXid(code: number, times: number, overrides: ReadonlyMap<number, XidClass>): XidClass {
  const overridden = overrides.get(code);
  if (overridden !== undefined) return overridden;
  if (ONLY_REPEATED.has(code) && times < 2) return "ignore";
  // 144 to 150 depend on words in the kernel's log that no exporter passes on, 154 on the card's recovery action.
  return CLASS_OF.get(code) ?? "warn";
}
