import { z } from "zod";
import { CONTROL_ROUTES } from "../contract/control-api.ts";
import { queuesView, type QueueAnswer } from "../contract/queues.ts";
import { escapeControls } from "../kernel/log.ts";
import type { Command } from "./cli-io.ts";
import { controlCommand, show, showAnswer, watch, WATCH_HELP, WATCH_OPTIONS } from "./ctl-control.ts";
import { formatTable, orDash } from "./table.ts";

const queues = controlCommand({
  words: ["ctl", "queues"],
  summary: "list the upstreams of all gateways, with slots in use and who waits",
  about:
    "Slots in use and requests that wait, by class (interactive/system/batch), over all gateways that are connected to the control plane\nthat answers; queue and first-byte times of the last minute, in ms.",
  optionsHelp: WATCH_HELP,
  options: WATCH_OPTIONS,
  act: (call) =>
    watch(call, (again) =>
      show(again, CONTROL_ROUTES.queues, queuesView, ({ upstreams }, shape) =>
        formatTable(
          shape.wide ? [...HEAD, ...WIDE_HEAD] : HEAD,
          upstreams.map((row) => (shape.wide ? [...queueRow(row), ...wideRow(row)] : queueRow(row))),
          shape,
        ),
      ),
    ),
});

const HEAD = ["UPSTREAM", "IN USE", "SLOTS", "WAITING", "LONGEST", "QUEUE P50/P95", "FIRST BYTE P50/P95", "AWAY"];
const WIDE_HEAD = ["BATCH MAX", "LINGERING", "PER S", "WELL", "SHARING", "GATEWAYS"];

const queueRow = (row: QueueAnswer): string[] => [
  row.id,
  byClass(row.in_use),
  String(row.slots),
  byClass(row.waiting),
  row.oldest_wait_ms === null ? "-" : `${Math.round(row.oldest_wait_ms / 100) / 10} s`,
  `${orDash(row.queue_ms.p50)}/${orDash(row.queue_ms.p95)}`,
  `${orDash(row.first_byte_ms.p50)}/${orDash(row.first_byte_ms.p95)}`,
  orDash(row.away),
];

const wideRow = (row: QueueAnswer): string[] => [
  String(row.batch_max),
  String(row.lingering),
  orDash(row.per_second),
  `${row.endpoints.well}/${row.endpoints.all}`,
  orDash(row.sharing),
  row.gateways.join(","),
];

const byClass = ({ interactive, system, batch }: QueueAnswer["in_use"]): string => `${interactive}/${system}/${batch}`;

const linkView = z.object({ path: z.string().regex(/^\/board\/#once=[\w-]{1,128}$/) });

const board = controlCommand({
  words: ["ctl", "board"],
  summary: "make a link that signs one browser in to the board",
  about: "Prints a link to the board. It signs one browser in as the key that asks, once, within 15 minutes.",
  options: {},
  act: async (call) => {
    const answer = await call.client.request("POST", CONTROL_ROUTES.boardLinks);
    return showAnswer(call, answer, linkView, ({ path }) => `${escapeControls(call.client.base + path)}\n`);
  },
});

export const ctlBoardCommands: readonly Command[] = [queues, board];
