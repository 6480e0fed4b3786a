import { z } from "zod";
import {
  confirmedView,
  CONTROL_ROUTES,
  gpuView,
  leaderView,
  logsView,
  modelView,
  nodeDoneView,
  nodeRemovedView,
  nodeView,
  placementView,
  replicaView,
  retriedView,
  tokenView,
} from "../contract/control-api.ts";
import { escapeControls } from "../kernel/log.ts";
import type { Command } from "./cli-io.ts";
import { controlCommand, inPath, show, showAnswer, watch, WATCH_HELP, WATCH_OPTIONS } from "./ctl-control.ts";
import { fetchWords } from "./ctl-weights.ts";
import { formatTable, orDash, type TableShape } from "./table.ts";

/** `wide`: shown with `-o wide` alone. */
interface Column<T> {
  readonly head: string;
  readonly cell: (item: T) => string;
  readonly wide?: true;
}

function listTable<T>(items: readonly T[], columns: readonly Column<T>[], shape: TableShape): string {
  const shown = columns.filter(({ wide = false }) => shape.wide || !wide);
  return formatTable(
    shown.map(({ head }) => head),
    items.map((item) => shown.map(({ cell }) => cell(item))),
    shape,
  );
}

const list = <T>(
  name: "nodes" | "gpus" | "models" | "replicas",
  entry: z.ZodType<T>,
  columns: readonly Column<T>[],
): Command =>
  controlCommand({
    words: ["ctl", name],
    summary: `list the ${name}`,
    about: `Lists the ${name}; - stands for what nobody measured.`,
    optionsHelp: WATCH_HELP,
    options: WATCH_OPTIONS,
    act: (call) =>
      watch(call, (again) =>
        show(again, CONTROL_ROUTES[name], z.object({ [name]: z.array(entry) }), (body, shape) =>
          listTable((body as Record<string, T[]>)[name] ?? [], columns, shape),
        ),
      ),
  });

const inSeconds = (value: number | null): string => (value === null ? "-" : `${value} s`);
const inPercent = (part: number | null): string => (part === null ? "-" : `${Math.round(part * 100)} %`);

const nodes = list("nodes", nodeView, [
  { head: "NODE", cell: ({ name }) => name },
  {
    head: "STATE",
    cell: ({ state, draining, cordoned }) =>
      draining ? `${state}, draining` : cordoned ? `${state}, cordoned` : state,
  },
  { head: "SILENT", cell: ({ silent_s: silent }) => inSeconds(silent) },
  { head: "GPUS", cell: ({ gpus: count }) => orDash(count) },
  { head: "SICK", cell: ({ sick_gpus: sick }) => orDash(sick) },
  { head: "REPLICAS", cell: ({ replicas: count }) => String(count) },
  { head: "CORES", cell: ({ cores }) => orDash(cores), wide: true },
  { head: "MEMORY MIB", cell: ({ memory_mib: all }) => orDash(all), wide: true },
  { head: "FREE", cell: ({ memory_free_mib: free }) => orDash(free), wide: true },
  { head: "DISK FREE MIB", cell: ({ disk_free_mib: free }) => orDash(free), wide: true },
  { head: "FABRIC", cell: ({ fabric }) => orDash(fabric), wide: true },
  { head: "AGENT", cell: ({ agent_version: version }) => orDash(version), wide: true },
  { head: "ID", cell: ({ id }) => id, wide: true },
  { head: "ADDRESS", cell: ({ address }) => orDash(address) },
  {
    head: "LABELS",
    cell: ({ labels }) =>
      orDash(
        Object.entries(labels)
          .map(([name, value]) => `${name}=${value}`)
          .join(","),
      ),
  },
]);

const gpus = list("gpus", gpuView, [
  { head: "NODE", cell: ({ node }) => node },
  { head: "GPU", cell: ({ uuid }) => uuid },
  { head: "INDEX", cell: ({ index }) => String(index), wide: true },
  { head: "NAME", cell: ({ name }) => name, wide: true },
  { head: "CLASS", cell: ({ class: name }) => name },
  { head: "HEALTH", cell: ({ health, health_why: why }) => (why === null ? health : `${health}: ${why}`) },
  { head: "USED MIB", cell: ({ used_mib: used }) => orDash(used) },
  { head: "OF", cell: ({ memory_mib: all }) => orDash(all) },
  { head: "OTHERS", cell: ({ foreign_mib: foreign }) => orDash(foreign) },
  { head: "BUSY", cell: ({ utilization }) => inPercent(utilization) },
  { head: "HEAT", cell: ({ temperature_c: heat }) => (heat === null ? "-" : `${heat} °C`), wide: true },
  { head: "REPLICAS", cell: ({ replicas: tenants }) => orDash(tenants.join(",")) },
]);

const models = list("models", modelView, [
  { head: "MODEL", cell: ({ name }) => name },
  { head: "ALIASES", cell: ({ aliases }) => orDash(aliases.join(",")), wide: true },
  { head: "STATE", cell: ({ state }) => state },
  { head: "READY", cell: ({ ready }) => String(ready) },
  { head: "REPLICAS", cell: ({ replicas: count }) => String(count) },
  { head: "WANTED", cell: ({ wanted }) => String(wanted) },
  { head: "MIN", cell: ({ min }) => String(min) },
  { head: "MAX", cell: ({ max }) => String(max) },
  { head: "PRIORITY", cell: ({ priority }) => String(priority) },
  { head: "FAILED", cell: ({ failures_in_row: failures }) => String(failures), wide: true },
  {
    head: "WHY",
    cell: ({ why, warnings }) => orDash([...(why === null ? [] : [why]), ...warnings].join("; ")),
  },
]);

const replicas = list("replicas", replicaView, [
  { head: "REPLICA", cell: ({ id }) => id },
  { head: "MODEL", cell: ({ model }) => model },
  { head: "ENGINE", cell: ({ engine }) => engine },
  {
    head: "STATE",
    cell: ({ state, fetch, outdated }) => [state, ...fetchWords(fetch), ...(outdated ? ["outdated"] : [])].join(", "),
  },
  { head: "NODES", cell: (replica) => orDash(replica.nodes.join(",")) },
  { head: "GPUS", cell: (replica) => String(replica.gpus.length) },
  { head: "CARDS", cell: (replica) => orDash(replica.gpus.join(",")), wide: true },
  { head: "IDLE", cell: ({ idle_s: idle }) => inSeconds(idle) },
  { head: "GENERATION", cell: ({ generation }) => String(generation), wide: true },
  { head: "CREATED", cell: ({ created }) => created, wide: true },
  { head: "READY", cell: ({ ready }) => orDash(ready), wide: true },
  { head: "REPLACES", cell: ({ replaces }) => orDash(replaces), wide: true },
  { head: "RESTART", cell: ({ restart }) => (restart === "none" ? "-" : restart) },
  { head: "WHY", cell: ({ why, restart_why: restartWhy }) => orDash(restartWhy ?? why) },
]);

const leader = controlCommand({
  words: ["ctl", "leader"],
  summary: "show which control plane leads",
  about: "Shows who leads by the store's last word, and the role of the control plane that is asked.",
  optionsHelp: WATCH_HELP,
  options: WATCH_OPTIONS,
  act: (call) =>
    watch(call, (again) =>
      show(again, CONTROL_ROUTES.leader, leaderView, (body, shape) => {
        const { self, role, epoch, leader: term, store_silent_s: silent } = body;
        return formatTable(
          ["LEADER", "EPOCH", "THIS ONE", "ROLE", "ITS EPOCH", "STORE SILENT"],
          [[orDash(term?.holder ?? null), orDash(term?.epoch ?? null), self, role, orDash(epoch), inSeconds(silent)]],
          shape,
        );
      }),
    ),
});

const explain = controlCommand({
  words: ["ctl", "explain-placement"],
  names: ["MODEL"],
  summary: "show for each node what keeps a model from it",
  about:
    "For each profile and node: whether one more replica would fit there now, or the first thing that keeps it out, and by how much.",
  options: {},
  act: (call) =>
    show(
      call,
      `${CONTROL_ROUTES.models}/${inPath(call.positionals[0] ?? "")}/placement`,
      placementView,
      (body, shape) => {
        const rows = body.profiles.flatMap(({ engine, nodes: verdicts }, index) =>
          verdicts.map(({ node, fits, why }) => [String(index + 1), engine, node, fits ? "fits" : (why ?? "-")]),
        );
        const table =
          rows.length === 0 ? "there is no node\n" : formatTable(["PROFILE", "ENGINE", "NODE", "WHY NOT"], rows, shape);
        return table + body.notes.map((note) => `${escapeControls(note)}\n`).join("");
      },
    ),
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
  act: async (call) => {
    const answer = await call.client.request("POST", CONTROL_ROUTES.restoredConfirm);
    return showAnswer(call, answer, confirmedView, () => "confirmed\n");
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
  readonly view: z.ZodType;
}

const action = ({ words, name, summary, about, method, path, done, view }: Action): Command =>
  controlCommand({
    words,
    names: [name],
    summary,
    about,
    options: {},
    act: async (call) => {
      const [target = ""] = call.positionals;
      const answer = await call.client.request(method, path(inPath(target)));
      return showAnswer(call, answer, view, () => `${done} ${escapeControls(target)}\n`);
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
    view: nodeDoneView,
  }),
  action({
    words: ["ctl", "uncordon"],
    name: "NODE",
    summary: "let a node take replicas again",
    about: "Ends a cordon.",
    method: "POST",
    path: (node) => `${CONTROL_ROUTES.nodes}/${node}/uncordon`,
    done: "uncordoned",
    view: nodeDoneView,
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
    view: nodeDoneView,
  }),
  action({
    words: ["ctl", "retry"],
    name: "MODEL",
    summary: "lift a model's park and back-off",
    about: "The model is started again as if it had not failed.",
    method: "POST",
    path: (model) => `${CONTROL_ROUTES.models}/${model}/retry`,
    done: "retried",
    view: retriedView,
  }),
  action({
    words: ["ctl", "nodes", "remove"],
    name: "NODE",
    summary: "shut a node out and forget it",
    about: "Its credential ends at once. What runs there is stopped by nobody: end it on the node.",
    method: "DELETE",
    path: (node) => `${CONTROL_ROUTES.nodes}/${node}`,
    done: "removed",
    view: nodeRemovedView,
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
  act: async (call) => {
    const { client, positionals, values } = call;
    const request = { node: positionals[0], replace: values.replace };
    const answer = await client.request("POST", CONTROL_ROUTES.enrolmentTokens, request);
    return showAnswer(
      call,
      answer,
      tokenView,
      ({ node, token, expires }) =>
        `token for node ${escapeControls(node)} (works once, until ${escapeControls(expires)}):\n\n    ${escapeControls(token)}\n`,
    );
  },
});

export const ctlClusterCommands: readonly Command[] = [
  nodes,
  enrol,
  gpus,
  models,
  replicas,
  leader,
  confirmRestored,
  logs,
  explain,
  ...actions,
];
