import {
  collectionView,
  CONTROL_ROUTES,
  type CollectionAnswer,
  type ReplicaAnswer,
  type WeightsAnswer,
  type WeightsListAnswer,
  weightsListView,
} from "../contract/control-api.ts";
import { isCacheName, isDamagedName } from "../decide/weights/holding.ts";
import { escapeControls } from "../kernel/log.ts";
import type { Command } from "./cli-io.ts";
import { controlCommand, show, showAnswer } from "./ctl-control.ts";
import { formatTable, orDash, type TableShape } from "./table.ts";

const NAME_CHARS = 16;

/** The beginning tells computed names apart; others are shown as they are. */
const shortName = (name: string): string =>
  isCacheName(name) ? name.slice(0, NAME_CHARS) : isDamagedName(name) ? `${name.slice(0, NAME_CHARS)}.damaged` : name;
const size = (bytes: number | null): string =>
  bytes === null ? "-" : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;

/** How far a download is, for a line of a table. */
export function fetchWords(fetch: ReplicaAnswer["fetch"]): string[] {
  if (fetch === null) return [];
  const { bytes, total_bytes: total, bytes_per_s: pace, left_s: left } = fetch;
  const part = total === null || total === 0 ? size(bytes) : `${Math.floor((bytes / total) * 100)} % of ${size(total)}`;
  return [
    part,
    ...(pace === null ? [] : [`${(pace / 1e6).toFixed(1)} MB/s`]),
    ...(left === null ? [] : [`${left} s left`]),
  ];
}

const list = controlCommand({
  words: ["ctl", "weights", "list"],
  summary: "list what the nodes' caches of weights hold",
  about:
    "Lists for each node what is held, which models want it, what it has set aside since somebody changed it (damaged), and what the node did not put there (foreign), which is never touched.",
  options: {},
  act: (call) => show(call, CONTROL_ROUTES.weights, weightsListView, formatList),
});

function formatList({ weights }: WeightsListAnswer, shape: TableShape): string {
  const rows = weights.map((one) => [
    one.node,
    shape.wide ? one.name : shortName(one.name),
    size(one.bytes),
    one.kind,
    one.in_use ? "yes" : "-",
    one.kind === "foreign" || one.kind === "damaged" ? "-" : orDash(one.wanted_by.join(",")),
  ]);
  return formatTable(["NODE", "NAME", "SIZE", "KIND", "IN USE", "WANTED BY"], rows, shape);
}

const gc = controlCommand({
  words: ["ctl", "weights", "gc"],
  summary: "list, or remove, weights that nobody wants",
  about:
    "Lists weights that no model of this catalog or the one before wants, that no replica runs with, and that the node itself has fetched; with --damaged those that nodes have set aside, since somebody changed them.\nWith --collect the nodes are asked to remove them. Each looks again by itself and may refuse; that is shown, and no failure.",
  optionsHelp: `  --damaged               what is damaged, in place of what nobody wants
  --collect               ask the nodes to remove them
`,
  options: { damaged: { type: "boolean", default: false }, collect: { type: "boolean", default: false } },
  act: async (call) => {
    const { collect, damaged } = call.values;
    const listed = damaged ? formatDamaged : formatUnwanted;
    if (!collect) return show(call, CONTROL_ROUTES.weights, weightsListView, listed);
    const answer = await call.client.request("POST", CONTROL_ROUTES.weightsCollect, damaged ? { damaged } : undefined);
    return showAnswer(call, answer, collectionView, (told, shape) => formatCollection(told, shape, damaged));
  },
});

function formatUnwanted(answer: WeightsListAnswer, shape: TableShape): string {
  const { weights } = answer;
  const damaged = weights.filter(({ kind }) => kind === "damaged");
  const more =
    damaged.length === 0
      ? ""
      : `${damaged.length} damaged, ${size(sumOf(damaged))}: yardmaster ctl weights gc --damaged\n`;
  const unwanted = weights.filter((one) => one.unwanted);
  return `${formatRemovable(answer, unwanted, "unwanted", "yardmaster ctl weights gc --collect", shape)}${more}`;
}

const formatDamaged = (answer: WeightsListAnswer, shape: TableShape): string =>
  formatRemovable(
    answer,
    answer.weights.filter(({ kind }) => kind === "damaged"),
    "damaged",
    "yardmaster ctl weights gc --damaged --collect",
    shape,
  );

const sumOf = (weights: readonly WeightsAnswer[]): number => weights.reduce((sum, one) => sum + (one.bytes ?? 0), 0);

function formatRemovable(
  { held }: WeightsListAnswer,
  weights: readonly WeightsAnswer[],
  what: string,
  command: string,
  shape: TableShape,
): string {
  const hold = held === null ? "" : `nothing can be removed now: ${escapeControls(held)}\n`;
  if (weights.length === 0) return `${hold}nothing is ${what}\n`;
  const rows = weights.map((one) => [one.node, shape.wide ? one.name : shortName(one.name), size(one.bytes), one.kind]);
  const next = held === null ? `remove them with: ${command}\n` : hold;
  return `${formatTable(["NODE", "NAME", "SIZE", "KIND"], rows, shape)}\n${weights.length} ${what}, ${size(sumOf(weights))}\n${next}`;
}

function formatCollection({ asked, nodes }: CollectionAnswer, shape: TableShape, damaged: boolean): string {
  if (asked.weights === 0) return `nothing is ${damaged ? "damaged" : "unwanted"}\n`;
  const rows = nodes.flatMap(({ node, silent, results }) =>
    silent === null
      ? results.map((one) => [node, shortName(one.name), one.outcome, size(one.freed_bytes), orDash(one.why)])
      : [[node, "-", "no answer", "-", silent]],
  );
  const freed = nodes.flatMap(({ results }) => results).reduce((sum, one) => sum + one.freed_bytes, 0);
  const head = `asked to remove ${asked.weights} weights of ${size(asked.bytes)} on ${asked.nodes} nodes\n\n`;
  return `${head}${formatTable(["NODE", "NAME", "OUTCOME", "FREED", "WHY"], rows, shape)}\nfreed ${size(freed)}\n`;
}

export const ctlWeightsCommands: readonly Command[] = [list, gc];
