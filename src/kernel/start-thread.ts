import { getCompileCacheDir } from "node:module";
import { dirname } from "node:path";
import { Worker } from "node:worker_threads";

/**
 * Starts a thread of ours. `module` is the name, without its ending, of a file beside the caller's. The thread sees nothing of the
 * process's environment but where compiled modules are kept: without that it compiles its files at each start, which takes a tenth of
 * a second and memory that stays.
 */
export function startThread(
  module: string,
  callerUrl: string,
  { name, workerData }: { readonly name: string; readonly workerData: unknown },
): Worker {
  // From source the file is TypeScript, built it is JavaScript, with the same ending as the caller's.
  const file = new URL(`./${module}${callerUrl.slice(callerUrl.lastIndexOf("."))}`, callerUrl);
  const cache = getCompileCacheDir();
  const env = cache === undefined ? {} : { NODE_COMPILE_CACHE: dirname(cache) };
  return new Worker(file, { workerData, env, execArgv: [], name });
}
