import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const pathOf = (name: string): string => join(import.meta.dirname, "corpus", `${name}.txt`);

/** What earlier runs found for a target: one input a line, in base64. */
export function readCorpus(name: string): Buffer[] {
  if (!existsSync(pathOf(name))) return [];
  return readFileSync(pathOf(name), "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => Buffer.from(line, "base64"));
}

export function writeCorpus(name: string, inputs: readonly Buffer[]): void {
  writeFileSync(pathOf(name), inputs.map((input) => `${input.toString("base64")}\n`).join(""));
}
