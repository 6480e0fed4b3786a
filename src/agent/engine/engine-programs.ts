import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";
import type { ReplicaEngine } from "../../contract/catalog.ts";

/** Programs of the engines on this node, by engine; leading arguments behind the program. */
export type EnginePrograms = Readonly<Partial<Record<ReplicaEngine, readonly string[]>>>;

/** Relative paths are the agent's own folder's: engines run in others. A bare name is left to the path. */
export function resolvePrograms(programs: EnginePrograms, folder: string): EnginePrograms {
  return Object.fromEntries(
    Object.entries(programs).map(([engine, [program = "", ...rest]]) => [
      engine,
      [program.includes("/") ? resolve(folder, program) : program, ...rest],
    ]),
  );
}

/** Engines whose program is there now. */
export function enginesThere(programs: EnginePrograms, path: string): ReplicaEngine[] {
  const isThere = (program: string): boolean =>
    program.includes("/") ? isProgram(program) : findOnPath(program, path) !== null;
  return Object.entries(programs).flatMap(([engine, [program = ""]]) =>
    isThere(program) ? [engine as ReplicaEngine] : [],
  );
}

/** The path of a program that a bare name leads to; null when there is none. */
export function findOnPath(program: string, path: string): string | null {
  return (
    path
      .split(delimiter)
      .map((folder) => join(folder, program))
      .find(isProgram) ?? null
  );
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
