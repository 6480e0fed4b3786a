import { z } from "zod";
import { CONTROL_ROUTES, type EventAnswer, eventView } from "../contract/control-api.ts";
import { type Command, EXIT } from "./cli-io.ts";
import { reportFailure, reportShape } from "./ctl-client.ts";
import { type ControlCall, controlCommand, show, WATCH_MS, WATCH_OPTIONS } from "./ctl-control.ts";
import { patientClient } from "./ctl-patient.ts";
import { formatTable, orDash, type TableShape } from "./table.ts";

const eventsAnswer = z.object({ events: z.array(eventView) });

const HEAD = ["SEQ", "TIME", "EVENT", "OF", "BY", "WHY"];
const WIDE_HEAD = ["SEQ", "TIME", "EVENT", "MODEL", "REPLICA", "NODE", "BY", "WHY"];

function row(event: EventAnswer, { wide }: TableShape): readonly string[] {
  const { seq, at, kind, model, replicaId, nodeId, by, why } = event;
  const of = wide ? [orDash(model), orDash(replicaId), orDash(nodeId)] : [orDash(replicaId ?? model ?? nodeId)];
  return [String(seq), at, kind, ...of, orDash(by), why];
}

const formatEvents = (events: readonly EventAnswer[], shape: TableShape): string =>
  formatTable(
    shape.wide ? WIDE_HEAD : HEAD,
    events.map((event) => row(event, shape)),
    shape,
  );

type EventCall = ControlCall<{
  readonly limit: string;
  readonly kind?: string | undefined;
  readonly watch: boolean;
}>;

function pathOf({ values }: EventCall, after: number | null): string {
  const query = new URLSearchParams({ limit: values.limit });
  if (values.kind !== undefined) query.set("kind", values.kind);
  if (after !== null) query.set("after_seq", String(after));
  return `${CONTROL_ROUTES.events}?${query.toString()}`;
}

/** Prints each event once, the newest of those that are there first of all, until Ctrl-C. */
async function follow(call: EventCall): Promise<number> {
  const { io, json, shape } = call;
  const client = patientClient(call.client, io, false);
  let seen: number | null = null;
  for (;;) {
    const answer = await client.request("GET", pathOf(call, seen));
    if (answer.kind !== "done") return reportFailure(answer, io, "control plane");
    const parsed = eventsAnswer.safeParse(answer.body);
    if (!parsed.success) return reportShape(io, "control plane");
    const { events } = parsed.data;
    if (json) for (const event of events) io.out(`${JSON.stringify(event)}\n`);
    else if (events.length > 0 || seen === null) io.out(formatEvents(events, shape));
    seen = events.at(-1)?.seq ?? seen ?? 0;
    const isOver = await io.clock.sleep(WATCH_MS, io.signal).then(
      () => false,
      () => true,
    );
    if (isOver) return EXIT.done;
  }
}

const events = controlCommand({
  words: ["ctl", "events"],
  summary: "print what happened, and why",
  about: "Prints the newest events, oldest first.",
  optionsHelp: `  --limit N, -n N         at most N events (default 100)
  --kind KIND             only events of this kind
  --watch                 go on with those that come, until Ctrl-C; as JSON one event a line; a control plane
                          that is away is waited for, up to 60 s
`,
  options: { limit: { type: "string", short: "n", default: "100" }, kind: { type: "string" }, ...WATCH_OPTIONS },
  act: (call) =>
    call.values.watch
      ? follow(call)
      : show(call, pathOf(call, null), eventsAnswer, ({ events: found }, shape) => formatEvents(found, shape)),
});

export const ctlEventCommands: readonly Command[] = [events];
