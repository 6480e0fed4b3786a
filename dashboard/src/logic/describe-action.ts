import { BOARD_ACTIONS, type BoardAction } from "../../../src/contract/board.ts";
import type { BoardState } from "./board-state.ts";
import { formatCount, formatMoney, plural } from "./format.ts";

/** What is about to be asked for. */
export interface Intent {
  readonly action: BoardAction;
  /** What stands in the path, by the names there. */
  readonly target: Readonly<Record<string, string>>;
  readonly body?: Readonly<Record<string, unknown>>;
  /** What was found out for the confirmation. */
  readonly facts?: Readonly<Record<string, string>>;
}

export interface Description {
  readonly title: string;
  /** What will happen, each with its numbers. */
  readonly effects: readonly string[];
  /** What the button says that does it. */
  readonly button: string;
  readonly danger: boolean;
}

export interface ActionRequest {
  readonly method: string;
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>> | null;
}

export function requestOf({ action, target, body }: Intent): ActionRequest {
  const { method, path } = BOARD_ACTIONS[action];
  const filled = path.replaceAll(/:([a-z]+)/g, (_, name: string) => encodeURIComponent(target[name] ?? ""));
  return { method, path: filled, body: body ?? null };
}

const requests = (count: number | null): string =>
  count === null
    ? "nobody knows how many requests run there"
    : `${plural(count, "request")} ${count === 1 ? "runs" : "run"} there now`;

const sum = (counts: readonly (number | null)[]): number | null =>
  counts.reduce((total: number | null, count) => (total === null || count === null ? null : total + count), 0);

const LIVE: ReadonlySet<string> = new Set(["placing", "fetching", "starting", "ready", "draining"]);

function nodeEffects(
  state: BoardState,
  key: string,
): { readonly name: string; readonly held: number; readonly effects: readonly string[] } {
  const node = state.tables.nodes.get(key) ?? [...state.tables.nodes.values()].find(({ name }) => name === key);
  const name = node?.name ?? key;
  const there = [...state.tables.replicas.values()].filter(
    ({ nodes, state: is }) => LIVE.has(is) && nodes.includes(name),
  );
  const held = `${plural(there.length, "replica")} there (${requests(node?.inFlight ?? sum(there.map(({ inFlight }) => inFlight)))})`;
  const alone = there.filter(
    ({ model, state: is }) => is === "ready" && (state.tables.models.get(model)?.ready ?? 0) <= 1,
  );
  return {
    name,
    held: there.length,
    effects: [
      held,
      ...alone.map(({ model }) => `${model} has no other ready replica: its requests wait until a new one is ready`),
    ],
  };
}

type Describe = (state: BoardState, intent: Intent) => Description;

const node = (intent: Intent): string => intent.target["node"] ?? "";
const model = (intent: Intent): string => intent.target["model"] ?? "";
const textIn = (body: Readonly<Record<string, unknown>>, name: string): string => {
  const value = body[name];
  return typeof value === "string" ? value : "";
};
const tierOf = (intent: Intent): string => intent.target["tier"] ?? "";

const NODES: Readonly<Record<"cordon" | "uncordon" | "drain" | "nodeRemove", Describe>> = {
  drain: (state, intent) => {
    const { name, held, effects } = nodeEffects(state, node(intent));
    const [first = "", ...alone] = effects;
    return {
      title: `Drain node ${name}?`,
      effects: [
        held === 0
          ? "Nothing runs there now."
          : `${held === 1 ? "1 replica is" : `${formatCount(held)} replicas are`} moved to other nodes: ${first.replace(/^.*\(|\)$/g, "")}. They may end.`,
        ...alone.map((text) => `${text}.`),
        "Nothing new is placed there until it is uncordoned.",
      ],
      button: "Drain",
      danger: true,
    };
  },
  cordon: (state, intent) => {
    const { name, effects } = nodeEffects(state, node(intent));
    return {
      title: `Cordon node ${name}?`,
      effects: ["Nothing new is placed there until it is uncordoned.", `What runs stays: ${effects[0] ?? ""}.`],
      button: "Cordon",
      danger: false,
    };
  },
  uncordon: (state, intent) => ({
    title: `Uncordon node ${nodeEffects(state, node(intent)).name}?`,
    effects: ["Replicas may be placed there again from now on.", "A drain that runs there ends."],
    button: "Uncordon",
    danger: false,
  }),
  nodeRemove: (state, intent) => {
    const { name, held, effects } = nodeEffects(state, node(intent));
    return {
      title: `Remove node ${name}?`,
      effects: [
        "Its credential ends: the agent there can't connect again without a new token.",
        held === 0
          ? "Nothing runs there that is known of."
          : `What ran there is started elsewhere: ${effects[0] ?? ""}.`,
      ],
      button: "Remove",
      danger: true,
    };
  },
};

const MODELS: Readonly<Record<"retry" | "rollout" | "rolloutAll" | "scale" | "restart", Describe>> = {
  retry: (state, intent) => {
    const row = state.tables.models.get(model(intent));
    const failures = row?.failures_in_row ?? 0;
    return {
      title: `Retry model ${model(intent)}?`,
      effects: [
        `Its park and its back-off are lifted${failures === 0 ? "" : ` (${plural(failures, "failure")} in a row so far)`}.`,
        `It is tried again at once: ${plural(Math.max(0, (row?.wanted ?? 0) - (row?.ready ?? 0)), "replica")} to start.`,
      ],
      button: "Retry",
      danger: false,
    };
  },
  rollout: (state, intent) => {
    const ready = [...state.tables.replicas.values()].filter(
      (row) => row.model === model(intent) && row.state === "ready",
    );
    return {
      title: `Roll out ${model(intent)}?`,
      effects: [
        `${plural(ready.length, "ready replica")} ${ready.length === 1 ? "is" : "are"} replaced, one after another; ${requests(sum(ready.map(({ inFlight }) => inFlight)))}.`,
        "Where there is room, the replacement is ready before the old one drains. It stops at the first that fails.",
      ],
      button: "Roll out",
      danger: true,
    };
  },
  rolloutAll: (state) => {
    const outdated = [...state.tables.replicas.values()].filter((row) => row.outdated && row.state === "ready");
    return {
      title: "Roll out everything that is outdated?",
      effects: [
        `${plural(outdated.length, "outdated replica")} of ${plural(new Set(outdated.map((row) => row.model)).size, "model")} ${outdated.length === 1 ? "is" : "are"} replaced, one of each model at a time.`,
        "It stops at the first model whose replacement fails.",
      ],
      button: "Roll out",
      danger: true,
    };
  },
  scale: (state, intent) => {
    const row = state.tables.models.get(model(intent));
    const wanted = Number(intent.body?.["replicas"] ?? 0);
    const now = row?.replicas ?? 0;
    return {
      title: `Scale ${model(intent)} to ${plural(wanted, "replica")}?`,
      effects: [
        wanted > now
          ? `${plural(wanted - now, "replica")} ${wanted - now === 1 ? "is" : "are"} started where there is room (${formatCount(now)} now).`
          : wanted < now
            ? `${plural(now - wanted, "replica")} ${now - wanted === 1 ? "drains and stops" : "drain and stop"} (${formatCount(now)} now); requests there may end.`
            : `There are ${formatCount(now)} now: nothing changes until the catalog or the load does.`,
        ...(wanted === 0 ? ["With none it starts again with the next request."] : []),
        `The catalog allows ${formatCount(row?.min)} to ${formatCount(row?.max)}.`,
      ],
      button: `Scale to ${wanted}`,
      danger: wanted < now,
    };
  },
  restart: (state, intent) => {
    const id = intent.target["replica"] ?? "";
    const row = state.tables.replicas.get(id);
    const inPlace = intent.body?.["in_place"] === true;
    return {
      title: `Restart replica ${id}${inPlace ? " in its place" : ""}?`,
      effects: [
        inPlace
          ? `It stops first: ${requests(row?.inFlight ?? null)}, and ${row?.model ?? "the model"} has one replica fewer until the new one is ready.`
          : `A replacement is placed beside it where there is room; it then drains (${requests(row?.inFlight ?? null)}) and stops.`,
      ],
      button: "Restart",
      danger: inPlace,
    };
  },
};

const JOBS_AND_MONEY: Readonly<
  Record<
    "jobCancel" | "overflowApprove" | "overflowRevoke" | "overflowStop" | "overflowGo" | "overflowResume",
    Describe
  >
> = {
  jobCancel: (state, intent) => {
    const id = intent.target["job"] ?? "";
    const job = state.tables.jobs.get(id);
    return {
      title: `Cancel job ${id}?`,
      effects: [
        `It ends now and for good${job === undefined ? "" : `, with ${formatCount(job.progress.done)} of ${formatCount(job.progress.total)} done`}.`,
        job?.state === "running" ? "The call that runs on an engine is aborted." : "No engine is working on it.",
      ],
      button: "Cancel the job",
      danger: true,
    };
  },
  overflowApprove: (state, { body = {} }) => {
    const tier = textIn(body, "tier");
    const currency = state.cluster.spend?.tiers.find((each) => each.tier === tier)?.currency ?? null;
    return {
      title: `Let job ${textIn(body, "job")} go to ${tier}?`,
      effects: [
        `Its content leaves the house, and up to ${formatMoney(Number(body["max_price"]), currency)} may be spent on it, once.`,
        `The approval is for what the job asks for now, and ends after ${plural(Number(body["expires_s"] ?? 3_600) / 60, "minute")}.`,
      ],
      button: "Approve",
      danger: true,
    };
  },
  overflowRevoke: (_, intent) => ({
    title: `Take back the approval of job ${intent.target["job"] ?? ""} for ${tierOf(intent)}?`,
    effects: ["Nothing is sent there for it from now on; what has been sent is not taken back."],
    button: "Take back",
    danger: false,
  }),
  overflowStop: (state) => ({
    title: "Stop all spending?",
    effects: [
      `No gateway sends anything more to any of ${plural(state.cluster.spend?.tiers.length ?? 0, "tier")}.`,
      "What a tier has taken already is followed to its end, and paid for.",
    ],
    button: "Stop spending",
    danger: true,
  }),
  overflowGo: () => ({
    title: "Allow spending again?",
    effects: ["Jobs may go to tiers again, as far as approvals and budgets allow."],
    button: "Allow",
    danger: true,
  }),
  overflowResume: (state, intent) => ({
    title: `Let tier ${tierOf(intent)} go on?`,
    effects: [
      `It was halted: ${state.cluster.spend?.tiers.find((each) => each.tier === tierOf(intent))?.halted?.why ?? "nobody has told why"}.`,
      "Jobs may go there again, as far as approvals and its budget allow.",
    ],
    button: "Go on",
    danger: true,
  }),
};

const CLUSTER: Readonly<Record<"restoredConfirm" | "catalogConfirm" | "weightsCollect" | "try", Describe>> = {
  restoredConfirm: (state) => ({
    title: "What runs was looked at?",
    effects: [
      "The store is an old copy, and nothing has been stopped since. From now on everything is as the catalog wants it:",
      `${plural(state.tables.replicas.size, "replica")} of ${plural(state.tables.models.size, "model")} are known; engines that the catalog does not want are stopped.`,
    ],
    button: "Confirm",
    danger: true,
  }),
  catalogConfirm: (state) => ({
    title: "Put the held change of the catalog in force?",
    effects: [state.cluster.catalog.held?.why ?? "No change is held now."],
    button: "Put in force",
    danger: true,
  }),
  weightsCollect: (_, { facts = {} }) => ({
    title: "Remove weights that nobody wants?",
    effects: [
      `Nodes are asked to remove ${facts["what"] ?? "what neither this catalog nor the one before wants"}.`,
      "Each node checks again by itself, and removes nothing that Yardmaster did not fetch. A model that needs it later fetches it again.",
    ],
    button: "Remove",
    danger: true,
  }),
  try: () => ({
    title: "Ask the model?",
    effects: ["It counts as a request of the key."],
    button: "Ask",
    danger: false,
  }),
};

const DESCRIBE: Readonly<Record<BoardAction, Describe>> = { ...NODES, ...MODELS, ...JOBS_AND_MONEY, ...CLUSTER };

/** What an action will do, in words and numbers of this moment. */
export const describeAction = (state: BoardState, intent: Intent): Description =>
  DESCRIBE[intent.action](state, intent);
