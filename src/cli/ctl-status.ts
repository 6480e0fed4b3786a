import { CONTROL_ROUTES, type StatusView, statusView } from "../contract/control-api.ts";
import { escapeControls } from "../kernel/log.ts";
import type { Command } from "./cli-io.ts";
import { controlCommand, show, watch, WATCH_HELP, WATCH_OPTIONS } from "./ctl-control.ts";
import { formatTable, orDash, type TableShape } from "./table.ts";

const counts = (record: Readonly<Record<string, number>>): string =>
  Object.entries(record)
    .map(([state, count]) => `${count} ${state}`)
    .join(", ") || "none";

const status = controlCommand({
  words: ["ctl", "status"],
  summary: "show the cluster at a glance",
  about:
    "Capacity, nodes, replicas, what can't be placed and why, what nobody has asked for, the leader, gateways and jobs.",
  optionsHelp: WATCH_HELP,
  options: WATCH_OPTIONS,
  act: (call) => watch(call, (again) => show(again, CONTROL_ROUTES.status, statusView, formatStatus)),
});

const BAR_CHARS = 20;
/** Of models that nobody asks for; `-o wide` and `-o json` have all. */
const IDLE_SHOWN_MAX = 10;

/** `#` used, `=` kept for a replacement, `!` sick, `?` not known, `.` free. Whatever is there shows, however little of all it is. */
export function usageBar({ cards, used, kept, sick, unknown }: StatusView["gpus"][number]): string {
  const chars = (count: number): number =>
    count === 0 || cards === 0 ? 0 : Math.max(1, Math.floor((count / cards) * BAR_CHARS));
  const parts = [
    ["#", used],
    ["=", kept],
    ["!", sick],
    ["?", unknown],
  ] as const;
  const bar = parts.map(([sign, count]) => sign.repeat(chars(count))).join("");
  // Cards that are all of one kind fill it, whatever was lost by rounding down.
  const whole = parts.find(([, count]) => count === cards && cards > 0);
  return (whole === undefined ? bar : whole[0].repeat(BAR_CHARS)).slice(0, BAR_CHARS).padEnd(BAR_CHARS, ".");
}

function factLines(body: StatusView): readonly string[] {
  const { leader, catalog, gateways, jobs } = body;
  const lines = [
    `leader    ${leader.leader === null ? "not known" : `${leader.leader.holder} (epoch ${leader.leader.epoch})`}${leader.role === "leading" ? ", this one" : ""}`,
    `store     ${body.store}${leader.store_silent_s === null ? "" : `, silent for ${leader.store_silent_s} s`}`,
    `catalog   revision ${catalog.revision}, ${catalog.models === 1 ? "1 model" : `${catalog.models} models`}`,
    `nodes     ${counts(body.nodes)}`,
    `replicas  ${counts(body.replicas)}`,
    `gateways  ${gateways.connected} connected${gateways.behind > 0 ? `, ${gateways.behind} behind` : ""}, ${gateways.in_flight} calls in flight, ${gateways.waiting} wait for a start`,
    `jobs      ${jobs === null ? "-" : `${jobs.queued} queued, ${jobs.running} running`}`,
  ];
  if (body.restored)
    lines.push(
      "restored  the store is an old copy, and nothing is stopped until you have looked at what runs:",
      "          yardmaster ctl leader confirm-restored",
    );
  if (catalog.refused !== null) lines.push(`refused   ${escapeControls(catalog.refused)}`);
  if (catalog.held !== null)
    lines.push(`waiting   ${catalog.held.why}`, `          yardmaster ctl catalog confirm ${catalog.held.token}`);
  return lines;
}

function formatStatus(body: StatusView, shape: TableShape): string {
  const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
    rows.length === 0 ? "" : `\n${formatTable(head, rows, shape)}`;
  const cards = body.gpus.map((row) => [
    row.class,
    usageBar(row),
    ...[row.used, row.kept, row.free, row.sick, row.unknown].map(String),
  ]);
  const fabrics = body.fabrics.map(({ fabric, nodes, free, unknown }) => [
    orDash(fabric),
    ...[nodes, free, unknown].map(String),
  ]);
  const idle = body.not_asked.slice(0, shape.wide ? undefined : IDLE_SHOWN_MAX);
  const hidden = body.not_asked.length - idle.length;
  return [
    ...factLines(body).map((line) => `${escapeControls(line)}\n`),
    table(["GPU", "IN USE", "USED", "KEPT", "FREE", "SICK", "UNKNOWN"], cards),
    table(["FABRIC", "GPU NODES", "FREE WHOLE", "UNKNOWN"], fabrics),
    table(
      ["WAITING MODEL", "WHY"],
      body.troubles.map(({ model, why }) => [model, why]),
    ),
    table(
      ["NOT ASKED FOR", "REPLICAS", "FOR", "SINCE"],
      idle.map(({ model, replicas, idle_s: seconds, since }) => [model, String(replicas), `${seconds} s`, since]),
    ),
    hidden > 0 ? `and ${hidden} more\n` : "",
    body.use_unknown > 0
      ? `\nof ${body.use_unknown === 1 ? "1 model" : `${body.use_unknown} models`} with ready replicas it is not known when ${body.use_unknown === 1 ? "it was" : "they were"} last asked for\n`
      : "",
  ].join("");
}

export const ctlStatusCommands: readonly Command[] = [status];
