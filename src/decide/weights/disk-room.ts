/** The disk of the cache, as the system tells of it. */
export interface DiskFigures {
  readonly bytes: number;
  readonly freeBytes: number;
  /** Null where the file system has no such limit. */
  readonly freeFiles: number | null;
}

export interface DiskNeed {
  readonly bytes: number;
  readonly files: number;
}

export type RoomVerdict = { readonly kind: "enough" } | { readonly kind: "short"; readonly why: string };

/**
 * Whether something of this size may begin. `others` is what the downloads that are under way will still write: two that fit
 * alone and not together are not both begun. `reserve` is the part of the disk that downloads leave free, for logs and state.
 */
export function judgeDiskRoom(
  disk: DiskFigures,
  need: DiskNeed,
  others: readonly DiskNeed[],
  reserve: number,
): RoomVerdict {
  const promised = others.reduce((sum, { bytes }) => sum + bytes, 0);
  const usable = usableBytes(disk, reserve) - promised;
  if (need.bytes > usable) {
    const also = promised === 0 ? "" : `, after ${megabytes(promised)} that other downloads will take`;
    return {
      kind: "short",
      why: `no space: ${megabytes(need.bytes)} are needed, ${megabytes(Math.max(0, usable))} can be used${also}`,
    };
  }
  const files = others.reduce((sum, other) => sum + other.files, need.files);
  if (disk.freeFiles !== null && files > disk.freeFiles)
    return { kind: "short", why: `no space: the disk takes ${disk.freeFiles} more files, ${files} are needed` };
  return { kind: "enough" };
}

/** What downloads may fill, below 0 where the reserve is used already. */
export const usableBytes = ({ bytes, freeBytes }: DiskFigures, reserve: number): number =>
  Math.floor(freeBytes - bytes * reserve);

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;
