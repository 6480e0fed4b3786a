/** Words of a card's name that say nothing about its kind. */
const NOISE =
  /^(?:nvidia|amd|tesla|quadro|geforce|radeon|instinct|graphics|pro|oam|pcie|hbm\d?e?|sxm\d?|nvl|\d+gb?|generation)$/;
const FAMILY = /^(?:rtx|gtx|titan)$/;
const KIND = /^[a-z]{0,3}\d{1,4}[a-z]{0,3}$/;

/**
 * The short name that profiles use (`h200`, `b200`, `a40`, `rtx4090`, `mi300x`) for what a tool calls the card. Cards whose name
 * can't be taken apart have their whole name, in lower case and with dashes.
 */
export function gpuClass(name: string): string {
  const words = name
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== "");
  const telling = words.filter((word) => !NOISE.test(word));
  const family = telling.findIndex((word) => FAMILY.test(word));
  const kind = telling.find((word, at) => at !== family && KIND.test(word));
  if (kind === undefined) return words.join("-").slice(0, 64) || "unknown";
  // "RTX 6000 Ada" is another card than "RTX 6000"; "RTX A6000" is named by its number alone.
  const generation = telling.includes("ada") && !/[a-z]/.test(kind) ? "ada" : "";
  const ti = telling.includes("ti") ? "ti" : "";
  return family >= 0 && !/^[a-z]/.test(kind) ? `${telling[family]}${kind}${ti}${generation}` : kind;
}
