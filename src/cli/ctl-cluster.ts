import { z } from "zod";
import {
  CONTROL_ROUTES,
  eventView,
  gpuView,
  leaderView,
  logsView,
  modelView,
  nodeView,
  placementView,
  replicaView,
  type StatusView,
  statusView,
  tokenView,
} from "../contract/control-api.ts";
import { escapeControls } from "../kernel/log.ts";
import { type Command, EXIT } from "./cli-io.ts";
import { reportFailure } from "./ctl-client.ts";
import { controlCommand, inPath, show, showBody, watch, WATCH_HELP, WATCH_OPTIONS } from "./ctl-control.ts";
import { fetchWords } from "./ctl-weights.ts";
import { formatTable, orDash } from "./table.ts";

const counts = (record: Readonly<Record<string, number>>): string =>
  Object.entries(record)
    .map(([state, count]) => `${count} ${state}`)
    .join(", ") || "none";

const status = controlCommand({
  words: ["ctl", "status"],
  summary: "show the cluster at a glance",
  about: "Capacity, nodes, replicas, what can't be placed and why, the leader and the catalog.",
  optionsHelp: WATCH_HELP,
  options: WATCH_OPTIONS,
  act: (call) => watch(call, (again) => show(again, CONTROL_ROUTES.status, statusView, formatStatus)),
});

const BAR_CHARS = 20;

function formatStatus(body: StatusView): string {
  const { leader, catalog } = body;
  const lines = [
    `leader    ${leader.leader === null ? "not known" : `${leader.leader.holder} (epoch ${leader.leader.epoch})`}${leader.role === "leading" ? ", this one" : ""}`,
    `store     ${body.store}${leader.store_silent_s === null ? "" : `, silent for ${leader.store_silent_s} s`}`,
    `catalog   revision ${catalog.revision}, ${catalog.models === 1 ? "1 model" : `${catalog.models} models`}`,
    `nodes     ${counts(body.nodes)}`,
    `replicas  ${counts(body.replicas)}`,
  ];
  if (body.restored)
    lines.push(
      "restored  the store is an old copy, and nothing is stopped until you have looked at what runs:",
      "          yardmaster ctl leader confirm-restored",
    );
  if (catalog.refused !== null) lines.push(`refused   ${escapeControls(catalog.refused)}`);
  if (catalog.held !== null)
    lines.push(`waiting   ${catalog.held.why}`, `          yardmaster ctl catalog confirm ${catalog.held.token}`);
  const text = lines.map((line) => `${escapeControls(line)}\n`).join("");
  const bar = (used: number, all: number): string => {
    const full = all === 0 ? 0 : Math.round((used / all) * BAR_CHARS);
    return `${"#".repeat(full)}${".".repeat(BAR_CHARS - full)}`;
  };
  const cards = body.gpus.map(({ class: name, cards: all, used, free, sick, unknown }) => [
    name,
    bar(used, all),
    ...[used, free, sick, unknown].map(String),
  ]);
  const troubles = body.troubles.map(({ model, why }) => [model, why]);
  return [
    text,
    cards.length === 0 ? "" : `\n${formatTable(["GPU", "IN USE", "USED", "FREE", "SICK", "UNKNOWN"], cards)}`,
    troubles.length === 0 ? "" : `\n${formatTable(["WAITING MODEL", "WHY"], troubles)}`,
  ].join("");
}

const list = <T>(
  name: "nodes" | "gpus" | "models" | "replicas",
  entry: z.ZodType<T>,
  head: readonly string[],
  row: (item: T) => readonly string[],
): Command =>
  controlCommand({
    words: ["ctl", name],
    summary: `list the ${name}`,
    about: `Lists the ${name}; - stands for what nobody measured.`,
    optionsHelp: WATCH_HELP,
    options: WATCH_OPTIONS,
    act: (call) =>
      watch(call, (again) =>
        show(again, CONTROL_ROUTES[name], z.object({ [name]: z.array(entry) }), (body) =>
          formatTable(head, ((body as Record<string, T[]>)[name] ?? []).map(row)),
        ),
      ),
  });

const nodes = list(
  "nodes",
  nodeView,
  ["NODE", "STATE", "SILENT", "GPUS", "SICK", "REPLICAS", "ADDRESS", "LABELS"],
  (node) => [
    node.name,
    node.draining ? `${node.state}, draining` : node.cordoned ? `${node.state}, cordoned` : node.state,
    node.silent_s === null ? "-" : `${node.silent_s} s`,
    orDash(node.gpus),
    orDash(node.sick_gpus),
    String(node.replicas),
    orDash(node.address),
    orDash(
      Object.entries(node.labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(","),
    ),
  ],
);

const gpus = list(
  "gpus",
  gpuView,
  ["NODE", "GPU", "CLASS", "HEALTH", "USED MIB", "OF", "OTHERS", "BUSY", "REPLICAS"],
  (gpu) => [
    gpu.node,
    gpu.uuid,
    gpu.class,
    gpu.health_why === null ? gpu.health : `${gpu.health}: ${gpu.health_why}`,
    orDash(gpu.used_mib),
    orDash(gpu.memory_mib),
    orDash(gpu.foreign_mib),
    gpu.utilization === null ? "-" : `${Math.round(gpu.utilization * 100)} %`,
    orDash(gpu.replicas.join(",")),
  ],
);

const models = list(
  "models",
  modelView,
  ["MODEL", "STATE", "READY", "REPLICAS", "WANTED", "MIN", "MAX", "PRIORITY", "WHY"],
  (model) => [
    model.name,
    model.state,
    ...[model.ready, model.replicas, model.wanted, model.min, model.max, model.priority].map(String),
    orDash(model.why),
  ],
);

const replicas = list(
  "replicas",
  replicaView,
  ["REPLICA", "MODEL", "ENGINE", "STATE", "NODES", "GPUS", "IDLE", "RESTART", "WHY"],
  (replica) => [
    replica.id,
    replica.model,
    replica.engine,
    [replica.state, ...fetchWords(replica.fetch), ...(replica.outdated ? ["outdated"] : [])].join(", "),
    orDash(replica.nodes.join(",")),
    String(replica.gpus.length),
    replica.idle_s === null ? "-" : `${replica.idle_s} s`,
    replica.restart === "none" ? "-" : replica.restart,
    orDash(replica.restart_why ?? replica.why),
  ],
);

const leader = controlCommand({
  words: ["ctl", "leader"],
  summary: "show which control plane leads",
  about: "Shows who leads by the store's last word, and the role of the control plane that is asked.",
  options: {},
  act: (call) =>
    show(call, CONTROL_ROUTES.leader, leaderView, ({ self, role, epoch, leader: term, store_silent_s: silent }) =>
      formatTable(
        ["LEADER", "EPOCH", "THIS ONE", "ROLE", "ITS EPOCH", "STORE SILENT"],
        [
          [
            orDash(term?.holder ?? null),
            orDash(term?.epoch ?? null),
            self,
            role,
            orDash(epoch),
            silent === null ? "-" : `${silent} s`,
          ],
        ],
      ),
    ),
});

const events = controlCommand({
  words: ["ctl", "events"],
  summary: "print what happened, and why",
  about: "Prints the newest events, oldest first.",
  optionsHelp: `  --limit N, -n N         at most N events (default 100)
  --kind KIND             only events of this kind
`,
  options: { limit: { type: "string", short: "n", default: "100" }, kind: { type: "string" } },
  act: (call) => {
    const query = new URLSearchParams({ limit: call.values.limit });
    if (call.values.kind !== undefined) query.set("kind", call.values.kind);
    return show(
      call,
      `${CONTROL_ROUTES.events}?${query.toString()}`,
      z.object({ events: z.array(eventView) }),
      (body) =>
        formatTable(
          ["SEQ", "TIME", "EVENT", "OF", "BY", "WHY"],
          body.events.map((event) => [
            String(event.seq),
            event.at,
            event.kind,
            orDash(event.replicaId ?? event.model ?? event.nodeId),
            orDash(event.by),
            event.why,
          ]),
        ),
    );
  },
});

const explain = controlCommand({
  words: ["ctl", "explain-placement"],
  names: ["MODEL"],
  summary: "show for each node what keeps a model from it",
  about:
    "For each profile and node: whether one more replica would fit there now, or the first thing that keeps it out, and by how much.",
  options: {},
  act: (call) =>
    show(call, `${CONTROL_ROUTES.models}/${inPath(call.positionals[0] ?? "")}/placement`, placementView, (body) => {
      const rows = body.profiles.flatMap(({ engine, nodes: verdicts }, index) =>
        verdicts.map(({ node, fits, why }) => [String(index + 1), engine, node, fits ? "fits" : (why ?? "-")]),
      );
      const table =
        rows.length === 0 ? "there is no node\n" : formatTable(["PROFILE", "ENGINE", "NODE", "WHY NOT"], rows);
      return table + body.notes.map((note) => `${escapeControls(note)}\n`).join("");
    }),
});

const logs = controlCommand({
  words: ["ctl", "logs"],
  names: ["REPLICA"],
  summary: "print the last lines of an engine's log",
  about: "Asks the replica's node for the last lines that its engine wrote.",
  optionsHelp: `  --lines N, -n N         at most N lines (default 100)
  --shard N               of a replica on several nodes (default 0: its head)
`,
  options: { lines: { type: "string", short: "n", default: "100" }, shard: { type: "string", default: "0" } },
  act: (call) => {
    const query = new URLSearchParams({ lines: call.values.lines, shard: call.values.shard });
    const path = `${CONTROL_ROUTES.replicas}/${inPath(call.positionals[0] ?? "")}/logs?${query.toString()}`;
    return show(call, path, logsView, ({ lines }) => lines.map((line) => `${escapeControls(line)}\n`).join(""));
  },
});

const confirmRestored = controlCommand({
  words: ["ctl", "leader", "confirm-restored"],
  summary: "say that what runs was looked at after an old copy of the store was put back",
  about:
    "After a database was restored from a copy nothing is stopped. From this command on what runs is brought to what the catalog wants.",
  options: {},
  act: async ({ client, io, json }) => {
    const answer = await client.request("POST", CONTROL_ROUTES.restoredConfirm);
    if (answer.kind !== "done") return reportFailure(answer, io, "control plane");
    io.out(json ? `${JSON.stringify(answer.body)}\n` : "confirmed\n");
    return EXIT.done;
  },
});

interface Action {
  readonly words: readonly string[];
  readonly name: "NODE" | "MODEL";
  readonly summary: string;
  readonly about: string;
  readonly method: "POST" | "DELETE";
  readonly path: (name: string) => string;
  readonly done: string;
}

const action = ({ words, name, summary, about, method, path, done }: Action): Command =>
  controlCommand({
    words,
    names: [name],
    summary,
    about,
    options: {},
    act: async ({ client, io, json, positionals }) => {
      const [target = ""] = positionals;
      const answer = await client.request(method, path(inPath(target)));
      if (answer.kind !== "done") return reportFailure(answer, io, "control plane");
      io.out(json ? `${JSON.stringify(answer.body)}\n` : `${done} ${escapeControls(target)}\n`);
      return EXIT.done;
    },
  });

const actions = [
  action({
    words: ["ctl", "cordon"],
    name: "NODE",
    summary: "take nothing new to a node",
    about: "What runs there goes on.",
    method: "POST",
    path: (node) => `${CONTROL_ROUTES.nodes}/${node}/cordon`,
    done: "cordoned",
  }),
  action({
    words: ["ctl", "uncordon"],
    name: "NODE",
    summary: "let a node take replicas again",
    about: "Ends a cordon.",
    method: "POST",
    path: (node) => `${CONTROL_ROUTES.nodes}/${node}/uncordon`,
    done: "uncordoned",
  }),
  action({
    words: ["ctl", "drain"],
    name: "NODE",
    summary: "have a node's replicas run elsewhere, and take nothing new to it",
    about:
      "Its replicas are replaced on other nodes, one of a model at a time, and serve until then. One that fits nowhere else stays, and `ctl replicas` says why. `ctl uncordon` ends it.",
    method: "POST",
    path: (node) => `${CONTROL_ROUTES.nodes}/${node}/drain`,
    done: "draining",
  }),
  action({
    words: ["ctl", "retry"],
    name: "MODEL",
    summary: "lift a model's park and back-off",
    about: "The model is started again as if it had not failed.",
    method: "POST",
    path: (model) => `${CONTROL_ROUTES.models}/${model}/retry`,
    done: "retried",
  }),
  action({
    words: ["ctl", "nodes", "remove"],
    name: "NODE",
    summary: "shut a node out and forget it",
    about: "Its credential ends at once. What runs there is stopped by nobody: end it on the node.",
    method: "DELETE",
    path: (node) => `${CONTROL_ROUTES.nodes}/${node}`,
    done: "removed",
  }),
];

const enrol = controlCommand({
  words: ["ctl", "nodes", "enrol"],
  names: ["NODE"],
  summary: "make the one-time token that lets a node in",
  about:
    "Prints a token that works once, for a node of this name, for 15 minutes. Refused while an agent of this name is connected;\n" +
    "with --replace it is shut out as soon as the token is used, and its engines run on without it.",
  options: { replace: { type: "boolean", default: false } },
  act: async ({ client, io, json, positionals, values }) => {
    const request = { node: positionals[0], replace: values.replace };
    const answer = await client.request("POST", CONTROL_ROUTES.enrolmentTokens, request);
    if (answer.kind !== "done") return reportFailure(answer, io, "control plane");
    return showBody(
      io,
      json,
      tokenView,
      answer.body,
      ({ node, token, expires }) =>
        `token for node ${escapeControls(node)} (works once, until ${escapeControls(expires)}):\n\n    ${escapeControls(token)}\n`,
    );
  },
});

export const ctlClusterCommands: readonly Command[] = [
  status,
  nodes,
  enrol,
  gpus,
  models,
  replicas,
  events,
  leader,
  confirmRestored,
  logs,
  explain,
  ...actions,
];
