import type { Exclusion } from "./exclusion.ts";
import { assertNever } from "../../kernel/assert-never.ts";

const MIB_PER_GIB = 1024;

/** "12.5 GiB": to a tenth, as people compare sizes of cards. */
export const size = (mib: number): string =>
  mib < MIB_PER_GIB ? `${Math.round(mib)} MiB` : `${(mib / MIB_PER_GIB).toFixed(1)} GiB`;
const seconds = (ms: number | null): string => (ms === null ? "" : ` for ${Math.round(ms / 1000)} s`);
const cards = (count: number): string => (count === 1 ? "1 card" : `${count} cards`);

/** The reason in words and numbers. */
export function describeExclusion(why: Exclusion): string {
  switch (why.kind) {
    case "neverSeen":
      return "its agent has not been heard yet";
    case "unreachable":
      return `it has been silent${seconds(why.silentMs)}`;
    case "lost":
      return `it is lost: silent${seconds(why.silentMs)}`;
    case "cordoned":
      return "it is cordoned";
    case "labelMissing":
      return `label ${why.label} must be ${why.wanted}, and is ${why.found ?? "not set"}`;
    case "labelAvoided":
      return `label ${why.label} is ${why.value}, which the model avoids`;
    case "avoided":
      return "it held the replica that is being replaced";
    case "failedTooOften":
      return `the model failed here ${why.failures} times, of ${why.failuresMax} allowed`;
    case "engineMissing":
      return `it can't run ${why.engine}`;
    case "commandNotAllowed":
      return `its configuration does not allow ${why.command}`;
    case "disk":
      return `needs ${size(why.neededMib)} of disk, and ${size(why.freeMib)} are free`;
    case "diskUnknown":
      return "its free disk is not known";
    case "cores":
      return `needs ${why.needed} cores, and ${why.free} are free`;
    case "memory":
      return `needs ${size(why.neededMib)} of memory, and ${size(why.freeMib)} are free`;
    case "memoryUnknown":
      return "its free memory is not known";
    case "fabricMissing":
      return "it belongs to no fabric";
    case "fabricTooSmall":
      return `needs ${why.needed} nodes of one fabric, and on ${why.fabric} there are ${why.fitting}`;
    default:
      return describeCards(why);
  }
}

type OfCards = Extract<Exclusion, { kind: `gpu${string}` | "pinnedGpuAbsent" }>;

function describeCards(why: OfCards): string {
  switch (why.kind) {
    case "gpuDiscoveryFailed":
      return `its cards could not be read${why.why === null ? "" : `: ${why.why}`}`;
    case "pinnedGpuAbsent":
      return `the pinned ${why.uuids.join(", ")} is not here`;
    case "gpuClass":
      return `needs ${why.wanted.join(" or ")}, and has ${why.found.length === 0 ? "no card" : why.found.join(", ")}`;
    case "gpuCount":
      return `needs ${cards(why.needed)}, and has ${why.found}`;
    case "gpuSick":
      return `needs ${cards(why.needed)}, and ${why.healthy} are healthy (${why.sick} sick)`;
    case "gpuMemoryUnknown":
      return `needs ${cards(why.needed)}, and the memory of ${why.known} is known`;
    case "gpuTooSmall":
      return `ran out of memory with ${size(why.ranOutAtMib)} on a card, and the largest has ${size(why.largestMib)}`;
    case "gpuMemory": {
      const foreign = why.foreignMib > 0 ? `; others use ${size(why.foreignMib)}` : "";
      return `needs ${size(why.neededMib)} on each of ${cards(why.cardsNeeded)}; ${why.cardsFitting} have that, the ${why.cardsNeeded} freest have ${size(why.freeMib)}${foreign}`;
    }
    default:
      return assertNever(why, "exclusion");
  }
}
