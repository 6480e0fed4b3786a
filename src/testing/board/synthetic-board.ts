import type {
  Change,
  GpuRow,
  GpuTile,
  JobRow,
  ModelRow,
  NodeRow,
  Plot,
  ReplicaRow,
  Snapshot,
  UpstreamRow,
} from "../../contract/board.ts";
import { PLOT_SPAN_MS } from "../../contract/board.ts";
import type { StoredEvent } from "../../contract/control-event.ts";
import { asEpoch, formatIsoTime } from "../../kernel/clock.ts";
import { type Random, seededRandom } from "../../kernel/random.ts";
import { ASKING, OVERFLOW, SPEND } from "./synthetic-overflow.ts";

/** A board's data for a fleet that is nowhere: as large as wanted, and in motion. The same seed gives the same fleet. */
export interface SyntheticSize {
  readonly nodes: number;
  readonly models: number;
  readonly upstreams: number;
  readonly jobs: number;
}

export const LARGE: SyntheticSize = { nodes: 1_000, models: 2_000, upstreams: 300, jobs: 200 };
export const SMALL: SyntheticSize = { nodes: 12, models: 14, upstreams: 5, jobs: 9 };

const NAMES = [
  "qwen3.8-35b",
  "llama-4-scout",
  "mistral-small",
  "bge-m3",
  "whisper-large",
  "deepseek-v4-lite",
  "gemma-4-27b",
];
const CARDS = [
  ["h200", "NVIDIA H200", 143_771],
  ["b200", "NVIDIA B200", 183_359],
  ["a40", "NVIDIA A40", 46_068],
] as const;
/** 2026-03-02 03:12 */
const AT = 1_772_421_120_000;

const iso = (ms: number): string => formatIsoTime(asEpoch(ms));

export class SyntheticBoard {
  readonly #random: Random;
  readonly #size: SyntheticSize;
  #at = AT;
  #snapshot: Snapshot;

  constructor(size: SyntheticSize, seed = 7) {
    this.#size = size;
    this.#random = seededRandom(seed);
    this.#snapshot = this.#make();
  }

  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  /** One second later: every card and queue has other figures, as in a fleet that works. */
  tick(): Change {
    this.#at += 1_000;
    const { tables } = this.#snapshot;
    const gpus = Object.fromEntries(
      Object.entries(tables.gpus).map(([key, row]) => [key, { ...row, gpus: row.gpus.map((gpu) => this.#moved(gpu)) }]),
    );
    const upstreams = Object.fromEntries(
      Object.entries(tables.upstreams).map(([key, row]) => [key, this.#movedQueue(row)]),
    );
    const jobs = Object.fromEntries(
      Object.entries(tables.jobs)
        .filter(([, job]) => job.state === "running")
        .map(([key, job]) => [
          key,
          { ...job, progress: { ...job.progress, done: Math.min(job.progress.total, job.progress.done + 1) } },
        ]),
    );
    this.#snapshot = {
      ...this.#snapshot,
      at: this.#at,
      tables: { ...tables, gpus, upstreams, jobs: { ...tables.jobs, ...jobs } },
    };
    return { at: this.#at, set: { gpus, upstreams, jobs } };
  }

  plot(upstream: string): Plot {
    const row = this.#snapshot.tables.upstreams[upstream];
    const at = Array.from({ length: 900 }, (_, index) => this.#at - PLOT_SPAN_MS + index * 1_000);
    const slots = row?.slots ?? 0;
    const shape = (ms: number, phase: number): number =>
      0.75 + 0.25 * Math.sin(ms / 61_000 + phase) + 0.12 * Math.sin(ms / 7_300 + phase);
    // So that it ends where the row goes on.
    const wave = (phase: number, now = 0): number[] =>
      at.map((ms) => Math.round((now * shape(ms, phase)) / shape(this.#at, phase)));
    const zero = at.map(() => 0);
    return {
      upstream,
      at,
      inUse: {
        interactive: wave(1, row?.inUse.interactive),
        system: wave(2, row?.inUse.system),
        batch: wave(4, row?.inUse.batch),
      },
      waiting: { interactive: zero, system: zero, batch: zero },
      slots: at.map(() => slots),
      batchMax: at.map(() => row?.batchMax ?? 0),
    };
  }

  #moved(gpu: GpuTile): GpuTile {
    if (gpu.utilization === null) return gpu;
    const utilization = Math.min(1, Math.max(0, gpu.utilization + (this.#random.next() - 0.5) / 5));
    return { ...gpu, utilization, temperatureC: Math.round(34 + utilization * 44) };
  }

  #movedQueue(row: UpstreamRow): UpstreamRow {
    const interactive = Math.min(
      row.slots,
      Math.max(0, row.inUse.interactive + Math.round((this.#random.next() - 0.5) * 4)),
    );
    const batch = Math.min(
      row.batchMax,
      row.slots - interactive,
      Math.max(0, row.inUse.batch + Math.round((this.#random.next() - 0.5) * 4)),
    );
    return {
      ...row,
      inUse: { ...row.inUse, interactive, batch },
      perSecond: Math.round(this.#random.next() * 240) / 10,
    };
  }

  #model(index: number): string {
    const name = NAMES[index % NAMES.length] ?? "model";
    return index < NAMES.length ? name : `${name}-${Math.floor(index / NAMES.length)}`;
  }

  #make(): Snapshot {
    const { nodes, models, upstreams, jobs } = this.#size;
    const names = Array.from({ length: models }, (_, index) => this.#model(index));
    const replicas: [string, ReplicaRow][] = [];
    const nodeRows: [string, NodeRow][] = [];
    const gpuRows: [string, GpuRow][] = [];
    for (let index = 0; index < nodes; index += 1) {
      const silent = index === 2;
      const name = `gpu-${String(index + 1).padStart(2, "0")}`;
      const model = names[index % names.length] ?? "model";
      const id = `${model}-${(index * 7_919).toString(36).padStart(4, "0")}`;
      const count = index % 5 === 4 ? 4 : 8;
      const tiles = Array.from({ length: count }, (_, card) => this.#card(index, card, { replica: id, model }));
      if (!silent) gpuRows.push([`n${index}`, { node: name, gpus: tiles }]);
      nodeRows.push([`n${index}`, this.#node(index, name, silent, silent ? null : tiles)]);
      replicas.push([
        id,
        this.#replica(
          id,
          model,
          name,
          tiles.slice(0, 4).map(({ uuid }) => uuid),
          index,
        ),
      ]);
    }
    const modelRows = names.map((name, index): [string, ModelRow] => [
      name,
      this.#modelRow(name, index, replicas.filter(([, row]) => row.model === name).length),
    ]);
    return {
      at: this.#at,
      top: {
        severity: "warning",
        sentence: "gpu-03 silent for 40 s: 1 replica is being rebuilt; nobody waits longer than 1.2 s",
        action: { view: "fleet", id: "n2", words: "see what ran on gpu-03", does: null },
        others: [
          {
            severity: "warning",
            sentence: "gpu-05: card 2 is sick (Xid 79: it has fallen off the bus)",
            action: { view: "fleet", id: "n4", words: "see gpu-05", does: "drain" },
          },
          {
            severity: "notice",
            sentence: "whisper-large is parked after 5 failures in a row: the engine ended by SIGKILL",
            action: { view: "models", id: "whisper-large", words: "retry it", does: "retry" },
          },
        ],
        more: 0,
      },
      cluster: this.#cluster(models),
      tables: {
        nodes: Object.fromEntries(nodeRows),
        gpus: Object.fromEntries(gpuRows),
        models: Object.fromEntries(modelRows),
        replicas: Object.fromEntries(replicas),
        upstreams: Object.fromEntries(names.slice(0, upstreams).map((name, index) => [name, this.#queue(name, index)])),
        jobs: Object.fromEntries(Array.from({ length: jobs }, (_, index) => this.#job(index))),
        overflow: { [names[0] ?? ""]: OVERFLOW },
        approvals: {},
        gateways: {
          g1: {
            id: "g1",
            name: "gate-a",
            version: "0.1.0",
            at: 41,
            behind: false,
            waiting: 0,
            in_flight: 61,
            silentSince: null,
            tells: true,
          },
          g2: {
            id: "g2",
            name: "gate-b",
            version: "0.1.0",
            at: 41,
            behind: false,
            waiting: 2,
            in_flight: 58,
            silentSince: null,
            tells: true,
          },
        },
        events: Object.fromEntries(Array.from({ length: 60 }, (_, index) => this.#event(index))),
      },
    };
  }

  #cluster(models: number): Snapshot["cluster"] {
    return {
      version: "0.1.0",
      clusterId: "c-4f1e",
      store: "postgres",
      self: "10.0.0.5:8300#a1",
      role: "leading",
      leader: { holder: "10.0.0.5:8300#a1", epoch: 12 },
      storeSilentSince: null,
      catalog: { revision: 118, models, held: null, refused: null },
      restored: false,
      capacity: [
        { class: "h200", cards: 32, used: 21, kept: 0, free: 8, sick: 0, unknown: 8 },
        { class: "b200", cards: 28, used: 16, kept: 0, free: 11, sick: 1, unknown: 0 },
        { class: "a40", cards: 28, used: 14, kept: 0, free: 14, sick: 0, unknown: 0 },
      ],
      spend: SPEND,
      gatewaysTell: true,
    };
  }

  #card(node: number, index: number, holder: { readonly replica: string; readonly model: string }): GpuTile {
    const [name, product, memoryMib] = CARDS[node % CARDS.length] ?? CARDS[0];
    const sick = node === 4 && index === 2;
    const unknown = node === 5 && index === 3;
    const held = !sick && index < 4;
    const usedMib = unknown ? null : held ? Math.round(memoryMib * (0.45 + this.#random.next() * 0.45)) : 4;
    const foreign = node === 1 && index === 6 ? Math.round(memoryMib * 0.2) : 0;
    return {
      uuid: `GPU-${node}-${index}-0000-fake`,
      index,
      name: product,
      class: name,
      health: sick ? "sick" : unknown ? "unknown" : "ok",
      why: sick ? "Xid 79: it has fallen off the bus" : unknown ? "nvidia-smi has no row for it" : null,
      memoryMib: unknown ? null : memoryMib,
      usedMib: usedMib === null ? null : usedMib + foreign,
      foreignMib: unknown ? null : foreign,
      utilization: unknown || sick ? null : held ? 0.35 + this.#random.next() * 0.6 : 0,
      temperatureC: unknown ? null : held ? 58 : 31,
      held: held ? [holder] : [],
    };
  }

  #node(index: number, name: string, silent: boolean, tiles: readonly GpuTile[] | null): NodeRow {
    return {
      id: `n${index}`,
      name,
      state: silent ? "unreachable" : "ready",
      silentSince: silent ? this.#at - 40_000 : null,
      cordoned: index === 7,
      draining: index === 9,
      agent_version: "0.1.0",
      address: `10.0.1.${index % 250}`,
      labels: { zone: index % 2 === 0 ? "a" : "b" },
      fabric: index % 2 === 0 ? "nvl-1" : "nvl-2",
      cores: 128,
      memory_mib: 2_064_384,
      memory_free_mib: silent ? null : 1_402_880,
      disk_free_mib: silent ? null : 3_145_728,
      gpus: tiles?.length ?? null,
      sick_gpus: tiles?.filter(({ health }) => health === "sick").length ?? null,
      gpu_discovery: null,
      replicas: 1,
      inFlight: silent ? null : Math.floor(this.#random.next() * 20),
    };
  }

  #replica(id: string, model: string, node: string, gpus: readonly string[], index: number): ReplicaRow {
    return {
      id,
      model,
      engine: "vllm",
      state: index === 6 ? "fetching" : "ready",
      generation: 1,
      nodes: [node],
      gpus: [...gpus],
      outdated: index === 3,
      restart: "none",
      restart_why: null,
      replaces: null,
      idleSince: null,
      inFlight: index === 2 ? null : Math.floor(this.#random.next() * 12),
      fetch:
        index === 6
          ? { bytes: 31_000_000_000, total_bytes: 70_000_000_000, bytes_per_s: 410_000_000, left_s: 95 }
          : null,
      created: iso(this.#at - 3_600_000 * (index + 1)),
      ready: index === 6 ? null : iso(this.#at - 3_500_000 * (index + 1)),
      why: null,
    };
  }

  #modelRow(name: string, index: number, replicas: number): ModelRow {
    const parked = name === "whisper-large";
    const waiting = index === 12;
    return {
      name,
      aliases: index === 0 ? ["qwen"] : [],
      priority: 50,
      min: 1,
      max: 4,
      wanted: Math.max(1, replicas),
      ready: parked || waiting ? 0 : replicas,
      replicas: parked ? 0 : replicas,
      state: parked ? "parked" : waiting ? "waiting" : replicas === 0 ? "stopped" : "ready",
      why: parked
        ? "parked after 5 failures in a row: the engine ended by SIGKILL (out of memory)"
        : waiting
          ? "no node has 8 free b200 cards: 6 is the most"
          : null,
      warnings: [],
      failures_in_row: parked ? 5 : 0,
    };
  }

  #queue(id: string, index: number): UpstreamRow {
    const slots = [64, 32, 16, 128, 8][index % 5] ?? 16;
    return {
      id,
      models: [id],
      engine: "vllm",
      catalogModel: id,
      gateways: ["gate-a", "gate-b"],
      slots,
      batchMax: Math.round(slots * 0.75),
      inUse: {
        interactive: Math.round(slots * 0.35),
        system: Math.round(slots * 0.08),
        batch: Math.round(slots * 0.3),
      },
      lingering: index === 1 ? 1 : 0,
      waiting: { interactive: index === 0 ? 3 : 0, system: 0, batch: index === 0 ? 41 : 0 },
      oldestWaitMs: index === 0 ? 1_200 : null,
      queueMs: { p50: index === 0 ? 180 : 0, p95: index === 0 ? 1_100 : 2, count: 412 },
      firstByteMs: index === 4 ? { p50: null, p95: null, count: 0 } : { p50: 210, p95: 640, count: 412 },
      perSecond: index === 4 ? null : 12.4,
      away: null,
      endpoints: { all: 2, well: index === 3 ? 1 : 2 },
      sharing: "redis",
    };
  }

  #job(index: number): [string, JobRow] {
    const id = `job_${(index * 104_729 + 900_000).toString(36)}`;
    const state = (["running", "running", "queued", "completed", "failed"] as const)[index % 5] ?? "queued";
    const created = this.#at - 60_000 * (index + 2);
    const ended = state === "completed" || state === "failed";
    return [
      id,
      {
        id,
        state,
        class: "batch",
        model: this.#model(index),
        upstream: null,
        method: "POST",
        path: "/v1/chat/completions",
        key: "reports",
        created_at: iso(created),
        started_at: state === "queued" ? null : iso(created + 4_000),
        ended_at: ended ? iso(created + 50_000) : null,
        expires_at: null,
        deadline_at: iso(created + 3_600_000),
        attempts: state === "queued" ? 0 : 1,
        max_attempts: 3,
        queue_ms: state === "queued" ? null : 4_000,
        progress: { done: ended ? 400 : state === "queued" ? 0 : 37 * (index + 1), total: 400 },
        error: state === "failed" ? { code: "UPSTREAM_TIMEOUT", message: "no first byte within 60 s" } : null,
        result: null,
        plan: [{ at: iso(created), what: "queued", why: "submitted" }],
        overflow: index === 2 ? ASKING : null,
        gateway: "g1",
      },
    ];
  }

  #event(index: number): [string, StoredEvent] {
    const kinds = [
      ["nodeUnreachable", "gpu-03 has been silent for 10 s"],
      ["replicaPlaced", "on gpu-07: it holds the weights"],
      ["replicaReady", "after 41 s"],
      ["gpuSick", "Xid 79: it has fallen off the bus"],
      ["modelParked", "5 failures in a row"],
      ["catalogApplied", "revision 118: 1 model changed"],
    ] as const;
    const [kind, why] = kinds[index % kinds.length] ?? kinds[0];
    const seq = 4_000 - index;
    return [
      String(seq),
      {
        seq,
        at: iso(this.#at - index * 37_000),
        kind,
        model: index % 2 === 0 ? null : this.#model(index),
        replicaId: null,
        nodeId: "gpu-03",
        why,
        by: index % 6 === 5 ? "root" : null,
      },
    ];
  }
}
