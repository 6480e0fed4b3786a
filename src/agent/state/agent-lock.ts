import { open, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { hasSystemCode, YardmasterError } from "../../kernel/errors.ts";
import { makeFolder } from "../../kernel/make-folder.ts";
import type { ProcessId } from "../../decide/agent/process-tree.ts";

const TRIES_MAX = 3;

/**
 * One agent at a time on a folder: two of them would both take the same engines for theirs. The file names the process by
 * number and start time, so that one which a killed agent left behind holds nobody up.
 */
export async function lockFolder(
  folder: string,
  self: ProcessId,
  startTicksOf: (pid: number) => number | null,
): Promise<AsyncDisposable> {
  await makeFolder(folder);
  const path = join(folder, "lock");
  for (let i = 0; i < TRIES_MAX; i += 1) {
    try {
      await using file = await open(path, "wx", 0o600);
      await file.writeFile(`${self.pid} ${self.startTicks}\n`);
      return { [Symbol.asyncDispose]: () => rm(path, { force: true }) };
    } catch (error) {
      if (!hasSystemCode(error, "EEXIST")) throw error;
    }
    const [pid = Number.NaN, ticks = Number.NaN] = (await readFile(path, "utf8")).trim().split(" ").map(Number);
    if (startTicksOf(pid) === ticks)
      throw new YardmasterError("CONFIG_INVALID", `${folder} is in use by another agent (process ${pid})`);
    await rm(path, { force: true });
  }
  throw new YardmasterError("CONFIG_INVALID", `${folder} can't be locked: another agent is starting on it`);
}
