import type { BoardAction, BoardLink, TopLine } from "../../contract/board.ts";

/** All that the sentence is made from. Null is unknown, and is never a trouble by itself. */
export interface StateView {
  /** Whether some control plane leads, and for how long the store of the one that answers has been silent. */
  readonly led: boolean;
  readonly storeSilentS: number | null;
  /** The store is an old copy. */
  readonly restored: boolean;
  readonly catalogHeld: string | null;
  readonly catalogRefused: string | null;
  readonly nodes: readonly {
    readonly id: string;
    readonly name: string;
    readonly state: "never_seen" | "ready" | "unreachable" | "lost";
    readonly silentS: number | null;
    readonly diskFreeMib: number | null;
    /** Replicas that run there by the documents. */
    readonly replicas: number;
  }[];
  readonly sickGpus: readonly {
    readonly nodeId: string;
    readonly node: string;
    readonly index: number;
    readonly why: string | null;
  }[];
  readonly models: readonly {
    readonly name: string;
    readonly state: "ready" | "starting" | "waiting" | "parked" | "stopped" | "removed";
    readonly why: string | null;
    readonly wanted: number;
    readonly ready: number;
  }[];
  /** Replicas on their way to serve. */
  readonly starting: number;
  readonly upstreams: readonly {
    readonly id: string;
    readonly waiting: number;
    /** Of a minute ago; null: not known. */
    readonly waitedBefore: number | null;
    readonly oldestWaitMs: number | null;
    readonly away: string | null;
    /** A model of the catalog is told of as a model. */
    readonly isOfCatalog: boolean;
  }[];
  readonly gateways: readonly { readonly id: string; readonly name: string; readonly silentS: number | null }[];
  /** Jobs that would go to a tier and lack an approval. */
  readonly approvalsAsked: readonly { readonly job: string; readonly tier: string }[];
  readonly haltedTiers: readonly { readonly tier: string; readonly why: string }[];
  readonly overflowStopped: { readonly by: string } | null;
  readonly gpus: { readonly cards: number; readonly used: number };
}

interface Trouble {
  readonly severity: Exclude<TopLine["severity"], "ok">;
  /** Within a severity, the higher first. */
  readonly weight: number;
  readonly sentence: string;
  readonly action: BoardLink | null;
}

const OTHERS_MAX = 5;
/** A wait that a person notices. */
const LONG_WAIT_MS = 10_000;
const GROWS_BY = 5;
/** Engines write logs and fetch weights; under this both stop. */
const DISK_FREE_MIB_MIN = 2_048;
const SILENT_GATEWAY_S = 5;
const RANK = { critical: 2, warning: 1, notice: 0 } as const;

/** Is it us, and what is to be done: the worst thing first. The same view always gives the same sentence. */
export function stateSentence(view: StateView): TopLine {
  const troubles = TELLERS.flatMap((tell) => tell(view));
  troubles.sort((one, other) => RANK[other.severity] - RANK[one.severity] || other.weight - one.weight);
  const [worst, ...others] = troubles;
  if (worst === undefined) return { severity: "ok", sentence: allIsWell(view), action: null, others: [], more: 0 };
  const { severity, sentence, action } = worst;
  const listed = others.slice(0, OTHERS_MAX).map(({ weight: _weight, ...rest }) => rest);
  return { severity, sentence, action, others: listed, more: others.length - listed.length };
}

function allIsWell(view: StateView): string {
  const ready = view.models.filter(({ state }) => state === "ready").length;
  const nodes = view.nodes.filter(({ state }) => state === "ready").length;
  const parts = [
    count(nodes, "node is", "nodes are", "heard"),
    `${ready} of ${count(view.models.length, "model", "models")} ${ready === 1 ? "is" : "are"} ready`,
    ...(view.gpus.cards === 0 ? [] : [`${view.gpus.used} of ${count(view.gpus.cards, "GPU", "GPUs")} in use`]),
    longestWait(view),
  ];
  return `All is well: ${parts.join(", ")}.`;
}

const noLeader = ({ led, storeSilentS }: StateView): Trouble[] =>
  led
    ? []
    : [
        {
          severity: "critical",
          weight: 100,
          sentence: `No control plane leads${storeSilentS === null ? "" : `, and the store has not answered for ${age(storeSilentS)}`}: what runs goes on, and nothing is started, moved or stopped.`,
          action: link("events", null, "see what happened last"),
        },
      ];

const storeDown = ({ led, storeSilentS }: StateView): Trouble[] =>
  !led || storeSilentS === null
    ? []
    : [
        {
          severity: "critical",
          weight: 90,
          sentence: `The store has not answered for ${age(storeSilentS)}: what runs goes on, and no change is taken.`,
          action: link("events", null, "see what happened last"),
        },
      ];

const oldStore = ({ restored }: StateView): Trouble[] =>
  restored
    ? [
        {
          severity: "critical",
          weight: 80,
          sentence:
            "The store is an old copy: nothing is stopped until somebody has looked at what runs and confirms it.",
          action: link("fleet", null, "look at what runs, then confirm", "restoredConfirm"),
        },
      ]
    : [];

/** All replicas of a model that is wanted are down: its requests fail now. */
function modelsDown({ models }: StateView): Trouble[] {
  return models.flatMap(({ name, state, why, wanted, ready }): Trouble[] => {
    if (state === "parked")
      return [
        {
          severity: ready === 0 ? "critical" : "warning",
          weight: 70,
          sentence: `${name} is parked${ready === 0 ? " and nothing of it runs" : ""}: ${why ?? "its replicas kept failing"}.`,
          action: link("models", name, "see why, and try again", "retry"),
        },
      ];
    if (state === "waiting" && wanted > ready)
      return [
        {
          severity: ready === 0 ? "critical" : "warning",
          weight: 60,
          sentence: `${name} has ${ready} of ${count(wanted, "replica", "replicas")}: ${why ?? "it waits for room"}.`,
          action: link("models", name, "see what each node lacks"),
        },
      ];
    if (state === "starting" && ready === 0 && wanted > 0)
      return [
        {
          severity: "warning",
          weight: 20,
          sentence: `${name} is starting, and nothing of it is ready yet.`,
          action: link("models", name, "see how far it is"),
        },
      ];
    return [];
  });
}

function nodesAway(view: StateView): Trouble[] {
  const away = view.nodes.filter(({ state }) => state === "unreachable" || state === "lost");
  const [first] = away.toSorted((one, other) => other.replicas - one.replicas);
  if (first === undefined) return [];
  const lost = away.filter(({ state }) => state === "lost").length;
  const { name, silentS } = first;
  const who =
    away.length === 1
      ? `${name} ${silentS === null ? "is silent" : `has been silent for ${age(silentS)}`}`
      : `${away.length} nodes are silent, ${name} ${silentS === null ? "among them" : `for ${age(silentS)}`}`;
  const rebuilt =
    lost === 0
      ? `${count(sum(away.map(({ replicas }) => replicas)), "replica is", "replicas are", "left as they are")} until it is lost`
      : `${count(view.starting, "replica is", "replicas are", "being rebuilt elsewhere")}`;
  return [
    {
      severity: lost > 0 ? "critical" : "warning",
      weight: 65,
      sentence: `${who}: ${rebuilt}; ${longestWait(view)}.`,
      action: link("fleet", first.id, away.length === 1 ? "see the node" : "see the nodes"),
    },
  ];
}

function upstreamsAway({ upstreams }: StateView): Trouble[] {
  return upstreams.flatMap(({ id, away, isOfCatalog, waiting }): Trouble[] =>
    away === null || isOfCatalog
      ? []
      : [
          {
            severity: "critical",
            weight: 55,
            sentence: `${id} takes no requests: ${away}${waiting > 0 ? `; ${count(waiting, "request waits", "requests wait")}` : ""}.`,
            action: link("queues", id, "see its endpoints"),
          },
        ],
  );
}

function queues({ upstreams }: StateView): Trouble[] {
  return upstreams.flatMap(({ id, waiting, waitedBefore, oldestWaitMs, away }): Trouble[] => {
    if (away !== null || waiting === 0) return [];
    const grows = waitedBefore !== null && waiting - waitedBefore >= GROWS_BY;
    const isLong = oldestWaitMs !== null && oldestWaitMs >= LONG_WAIT_MS;
    if (!grows && !isLong) return [];
    const trend = grows ? `, ${waiting - (waitedBefore ?? 0)} more than a minute ago` : "";
    const longest = oldestWaitMs === null ? "" : `, the longest for ${age(oldestWaitMs / 1_000)}`;
    return [
      {
        severity: grows && isLong ? "warning" : "notice",
        weight: 30 + Math.min(9, waiting / 100),
        sentence: `${count(waiting, "request waits", "requests wait")} for ${id}${trend}${longest}.`,
        action: link("queues", id, "see the queue"),
      },
    ];
  });
}

function sickGpus({ sickGpus: sick }: StateView): Trouble[] {
  const [first] = sick;
  if (first === undefined) return [];
  const more = sick.length === 1 ? "" : ` and ${count(sick.length - 1, "other GPU", "other GPUs")}`;
  return [
    {
      severity: "warning",
      weight: 50,
      sentence: `GPU ${first.index} of ${first.node}${more} ${sick.length === 1 ? "is" : "are"} sick: ${first.why ?? "the cause is not known"}; nothing new is placed there.`,
      action: link("fleet", first.nodeId, "see the card"),
    },
  ];
}

function fullDisks({ nodes }: StateView): Trouble[] {
  return nodes.flatMap(({ id, name, diskFreeMib }): Trouble[] =>
    diskFreeMib === null || diskFreeMib >= DISK_FREE_MIB_MIN
      ? []
      : [
          {
            severity: "warning",
            weight: 45,
            sentence: `The disk of ${name} is nearly full: ${Math.round(diskFreeMib / 102.4) / 10} GiB are free, and no weights are fetched there.`,
            action: link("fleet", id, "see the node"),
          },
        ],
  );
}

function gatewaysSilent({ gateways }: StateView): Trouble[] {
  const silent = gateways.filter(({ silentS }) => silentS !== null && silentS >= SILENT_GATEWAY_S);
  const [first] = silent;
  if (first === undefined) return [];
  const who =
    silent.length === 1 ? `Gateway ${first.name} has` : `${silent.length} gateways, ${first.name} among them, have`;
  return [
    {
      severity: "warning",
      weight: 40,
      sentence: `${who} not reported for ${age(first.silentS ?? 0)}: what is shown of queues is as old as that.`,
      action: link("queues", null, "see the queues"),
    },
  ];
}

function overflow({ approvalsAsked, haltedTiers, overflowStopped }: StateView): Trouble[] {
  const [asked] = approvalsAsked;
  const [halted] = haltedTiers;
  return [
    ...(asked === undefined
      ? []
      : [
          {
            severity: "notice" as const,
            weight: 25,
            sentence: `${count(approvalsAsked.length, "job waits", "jobs wait")} for an approval to go to ${asked.tier}.`,
            action: link("overflow", null, "see what it would cost, and approve", "overflowApprove"),
          },
        ]),
    ...(halted === undefined
      ? []
      : [
          {
            severity: "warning" as const,
            weight: 35,
            sentence: `Tier ${halted.tier} has halted: ${halted.why}.`,
            action: link("overflow", null, "see its spend, and let it go on", "overflowResume"),
          },
        ]),
    ...(overflowStopped === null
      ? []
      : [
          {
            severity: "notice" as const,
            weight: 24,
            sentence: `Overflow was stopped by ${overflowStopped.by}: nothing is sent to any tier.`,
            action: link("overflow", null, "let it go on", "overflowGo"),
          },
        ]),
  ];
}

const catalog = ({ catalogHeld, catalogRefused }: StateView): Trouble[] => [
  ...(catalogHeld === null
    ? []
    : [
        {
          severity: "warning" as const,
          weight: 28,
          sentence: `A change of the catalog waits for a confirmation: ${catalogHeld}.`,
          action: link("models", null, "see what it takes away, and confirm", "catalogConfirm"),
        },
      ]),
  ...(catalogRefused === null
    ? []
    : [
        {
          severity: "warning" as const,
          weight: 27,
          sentence: `The catalog's file is not in force: ${catalogRefused}.`,
          action: link("events", null, "see the mistakes"),
        },
      ]),
];

const TELLERS: readonly ((view: StateView) => Trouble[])[] = [
  noLeader,
  storeDown,
  oldStore,
  modelsDown,
  nodesAway,
  upstreamsAway,
  sickGpus,
  fullDisks,
  gatewaysSilent,
  queues,
  overflow,
  catalog,
];

function link(view: BoardLink["view"], id: string | null, words: string, does: BoardAction | null = null): BoardLink {
  return { view, id, words, does };
}

/** Who waits longest anywhere, in words; where nobody tells of queues it is not made up. */
function longestWait({ upstreams, gateways }: StateView): string {
  if (gateways.length === 0) return "how long requests wait is not known, since no gateway is connected";
  const waits = upstreams.flatMap(({ oldestWaitMs }) => oldestWaitMs ?? []);
  return waits.length === 0 ? "nobody waits" : `nobody waits longer than ${age(Math.max(...waits) / 1_000)}`;
}

const sum = (values: readonly number[]): number => values.reduce((all, one) => all + one, 0);

const count = (n: number, one: string, many: string, rest = ""): string =>
  `${n} ${n === 1 ? one : many}${rest === "" ? "" : ` ${rest}`}`;

/** In the unit that a person would say. */
function age(seconds: number): string {
  if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}
