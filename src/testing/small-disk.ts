import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hasSystemCode } from "../kernel/errors.ts";

export interface SmallDisk extends Disposable {
  readonly folder: string;
  remount(how: string): void;
  /** Takes all the room that is left, as a file of somebody else. */
  fill(): void;
  /** Gives it back. */
  clear(): void;
}

/** A small disk of its own; null where this user may mount none. */
export function smallDisk(options: string): SmallDisk | null {
  const folder = mkdtempSync(join(tmpdir(), "yardmaster-disk-"));
  const mount = (...args: readonly string[]): boolean => spawnSync("mount", args, { stdio: "ignore" }).status === 0;
  if (!mount("-t", "tmpfs", "-o", options, "tmpfs", folder)) {
    rmSync(folder, { recursive: true });
    return null;
  }
  const filler = join(folder, "of-somebody-else");
  return {
    folder,
    remount: (how) => assert.ok(mount("-o", `remount,${how}`, folder)),
    fill: () => {
      const file = openSync(filler, "a");
      try {
        for (;;) writeSync(file, Buffer.alloc(4096, 1));
      } catch (error) {
        if (!hasSystemCode(error, "ENOSPC")) throw error;
      } finally {
        closeSync(file);
      }
    },
    clear: () => rmSync(filler),
    [Symbol.dispose]: () => {
      spawnSync("umount", ["-l", folder], { stdio: "ignore" });
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Says so once where there are none. */
export const canMount = ((): boolean => {
  using disk = smallDisk("size=1m");
  if (disk === null) process.stderr.write("no small disks for these tests: this user may mount none; root may\n");
  return disk !== null;
})();
