import { realpathSync } from "node:fs";
import { delimiter, join, sep } from "node:path";

/** Where somebody stands who is told what to type. */
export interface Standing {
  /** This program's own file. */
  readonly program: string;
  readonly folder: string;
  /** Of the environment: where a shell looks for programs. */
  readonly path: string | undefined;
}

/** What to type in that folder to call this program: what is printed works when pasted, from a clone as from a package. */
export function programName({ program, folder, path = "" }: Standing): string {
  const own = realOf(program);
  const isOwn = (file: string): boolean => own !== null && realOf(file) === own;
  if (isOwn(join(folder, "bin/yardmaster"))) return "bin/yardmaster";
  if (isOwn(join(folder, "node_modules/.bin/yardmaster"))) return "npx yardmaster";
  // npm puts folders of its own on the path of what it starts, which the shell of whoever reads this does not have.
  const folders = path
    .split(delimiter)
    .filter((each) => each !== "" && !each.endsWith(join(sep, "node_modules", ".bin")));
  return folders.some((each) => isOwn(join(each, "yardmaster"))) ? "yardmaster" : program;
}

function realOf(file: string): string | null {
  try {
    return realpathSync(file);
  } catch {
    return null;
  }
}
