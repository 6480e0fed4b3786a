import { z } from "zod";
import {
  CONTROL_ROUTES,
  eventView,
  type ReplicaAnswer,
  replicaView,
  restartView,
  rolloutView,
  scaledView,
} from "../contract/control-api.ts";
import { hasReplaced } from "../contract/fleet.ts";
import { escapeControls } from "../kernel/log.ts";
import { usageError } from "./args.ts";
import { type Command, EXIT } from "./cli-io.ts";
import { type CtlClient, reportFailure, reportShape } from "./ctl-client.ts";
import { patientClient } from "./ctl-patient.ts";
import { type ControlCall, controlCommand, inPath, showAnswer } from "./ctl-control.ts";

const PACE_OPTIONS = {
  "max-surge": { type: "string" },
  "max-unavailable": { type: "string" },
  "min-available": { type: "string" },
  watch: { type: "boolean", default: false },
} as const;
const PACE_HELP = `  --max-surge N           replacements at once that start beside what they replace (default 1)
  --max-unavailable N     replicas of a model that may be stopped before their replacement is ready (default 0)
  --min-available N       refuse what would leave fewer ready (default 0)
  --watch                 show what becomes of it, until all of it has ended; exit code 1 if a part was refused or failed;
                          a control plane that is away is waited for, up to 60 s
`;

type Call = Pick<ControlCall<unknown>, "client" | "io" | "json">;
type PaceValues = Readonly<Partial<Record<"max-surge" | "max-unavailable" | "min-available", string>>>;

const WATCH_MS = 1_000;
const COUNT = /^\d{1,5}$/;

function countOf(option: string, text: string): number {
  if (!COUNT.test(text)) throw usageError(`${option}: use a number such as 2`);
  return Number(text);
}

function paceOf(values: PaceValues): Record<string, number> {
  const pace: Record<string, number> = {};
  for (const name of ["max-surge", "max-unavailable", "min-available"] as const) {
    const text = values[name];
    if (text !== undefined) pace[name.replace("-", "_")] = countOf(`--${name}`, text);
  }
  return pace;
}

interface Question<T> {
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>>;
  readonly view: z.ZodType<T>;
  /** The replicas that are to be restarted. */
  readonly idsOf: (told: T) => readonly string[];
  readonly words: (told: T) => string;
}

/** Asks for it, and tells the answer, or with `--watch` what becomes of it. Returns the exit code. */
async function ask<T>(
  call: ControlCall<{ readonly watch: boolean }>,
  { path, body, view, idsOf, words }: Question<T>,
): Promise<number> {
  const { client, io, values } = call;
  const answer = await client.request("POST", path, body);
  if (!values.watch) return showAnswer(call, answer, view, (told) => `${escapeControls(words(told))}\n`);
  if (answer.kind !== "done") return reportFailure(answer, io, "control plane");
  const told = view.safeParse(answer.body);
  return told.success ? follow(call, idsOf(told.data)) : reportShape(io, "control plane");
}

const restart = controlCommand({
  words: ["ctl", "restart"],
  names: ["REPLICA"],
  summary: "replace a ready replica by a new one",
  about:
    "The new one has the profile that the catalog has now. It starts beside the old one, which serves until it is ready; where there is no room for both it takes the old one's place. `ctl replicas` shows the state, and why a restart was refused.",
  optionsHelp: `  --in-place              stop it first, whatever room there is
${PACE_HELP}`,
  options: { "in-place": { type: "boolean", default: false }, ...PACE_OPTIONS },
  act: async (call) => {
    const { values, positionals } = call;
    const [id = ""] = positionals;
    return ask(call, {
      path: `${CONTROL_ROUTES.replicas}/${inPath(id)}/restart`,
      body: { in_place: values["in-place"], ...paceOf(values) },
      view: restartView,
      idsOf: () => [id],
      words: ({ restart: state }) => `restart of ${id}: ${state}`,
    });
  },
});

const rollout = controlCommand({
  words: ["ctl", "rollout"],
  usage: "MODEL|--outdated",
  names: ["MODEL"],
  optional: true,
  summary: "restart all replicas of a model, or all that are outdated",
  about:
    "Models come one after another. When a replacement fails, what has not begun serves on and is refused with the reason.",
  optionsHelp: `  --outdated              those of all models whose profile has changed since they were started
  --continue              go on after a replacement that failed
${PACE_HELP}`,
  options: {
    outdated: { type: "boolean", default: false },
    continue: { type: "boolean", default: false },
    ...PACE_OPTIONS,
  },
  act: async (call) => {
    const { values, positionals } = call;
    const [model] = positionals;
    if ((model !== undefined) === values.outdated) throw usageError("name a MODEL or say --outdated");
    return ask(call, {
      path: model === undefined ? CONTROL_ROUTES.rollout : `${CONTROL_ROUTES.models}/${inPath(model)}/rollout`,
      body: { continue: values.continue, ...paceOf(values) },
      view: rolloutView,
      idsOf: ({ replicas }) => replicas,
      words: ({ replicas }) => `${replicas.length} to be restarted: ${replicas.join(", ")}`,
    });
  },
});

const scale = controlCommand({
  words: ["ctl", "scale"],
  names: ["MODEL", "REPLICAS"],
  summary: "ask for a number of replicas",
  about: "Within `replicas.min` and `replicas.max` of the catalog. It holds until it is asked for another number.",
  options: {},
  act: async (call) => {
    const [model = "", text = ""] = call.positionals;
    const replicas = countOf("REPLICAS", text);
    const answer = await call.client.request("POST", `${CONTROL_ROUTES.models}/${inPath(model)}/scale`, { replicas });
    return showAnswer(call, answer, scaledView, () => `${escapeControls(model)}: ${replicas} replicas asked for\n`);
  },
});

/** What has become of one replica that was to be restarted. */
interface Progress {
  readonly replica: string;
  state: string;
  by: string | null;
}

const ENDED = /^(replaced|failed|refused)/;
const EVENTS_LOOKED_AT = 1_000;
const eventsView = z.object({ events: z.array(eventView) });

/** Shows each change until all of it has ended, through a restart of the control plane too. Returns the exit code. */
export async function follow({ client, io, json }: Call, ids: readonly string[]): Promise<number> {
  const reader = patientClient(client, io, true);
  const all = ids.map((replica): Progress => ({ replica, state: "queued", by: null }));
  for (;;) {
    const answer = await reader.request("GET", CONTROL_ROUTES.replicas);
    if (answer.kind !== "done") return reportFailure(answer, io, "control plane");
    const seen = z.object({ replicas: z.array(replicaView) }).safeParse(answer.body);
    if (!seen.success) return reportShape(io, "control plane");
    for (const progress of all) {
      const before = progress.state;
      if (!ENDED.test(before)) {
        look(progress, seen.data.replicas);
        if (isMissed(progress, seen.data.replicas)) await lookBack(reader, progress);
      }
      if (progress.state === before) continue;
      const { replica, state, by } = progress;
      io.out(json ? `${JSON.stringify({ replica, state, by })}\n` : `${escapeControls(`${replica}: ${state}`)}\n`);
    }
    if (all.every(({ state }) => ENDED.test(state)))
      return all.every(({ state }) => state.startsWith("replaced")) ? EXIT.done : EXIT.failed;
    await io.clock.sleep(WATCH_MS, io.signal);
  }
}

function look(progress: Progress, replicas: readonly ReplicaAnswer[]): void {
  const old = replicas.find(({ id }) => id === progress.replica);
  const heir = replicas.find(({ replaces }) => replaces === progress.replica);
  progress.by = heir?.id ?? progress.by;
  const by = replicas.find(({ id }) => id === progress.by);
  if (old !== undefined && old.restart !== "none") {
    progress.state = heir === undefined ? old.restart : `${old.restart} by ${heir.id} (${heir.state})`;
    return;
  }
  if (heir !== undefined && heir.state !== "failed") progress.state = `replacing by ${heir.id} (${heir.state})`;
  else if (by?.state === "ready") progress.state = `replaced by ${by.id}`;
  else if (by !== undefined && by.state !== "failed") progress.state = `replacing by ${by.id} (${by.state})`;
  else if (old === undefined || by?.state === "failed")
    progress.state = `failed${by === undefined ? "" : `: ${by.why ?? by.id}`}`;
  else progress.state = "failed: its restart is no longer asked for";
}

/** Neither it nor a replacement is there: what became of it was over before anybody looked. */
const isMissed = ({ replica, by }: Progress, replicas: readonly ReplicaAnswer[]): boolean =>
  !replicas.some(({ id, replaces }) => id === replica || id === by || replaces === replica);

/** The events still tell of it. */
async function lookBack(reader: Pick<CtlClient, "request">, progress: Progress): Promise<void> {
  const answer = await reader.request("GET", `${CONTROL_ROUTES.events}?kind=restartDone&limit=${EVENTS_LOOKED_AT}`);
  const told = answer.kind === "done" ? eventsView.safeParse(answer.body).data : undefined;
  const by = told?.events.find(({ why }) => why === hasReplaced(progress.replica))?.replicaId ?? null;
  if (by !== null) Object.assign(progress, { by, state: `replaced by ${by}` });
}

export const ctlRestartCommands: readonly Command[] = [restart, rollout, scale];
