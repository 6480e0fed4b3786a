import type { GpuReport } from "../../contract/fleet.ts";
import type { Sample } from "../telemetry/prometheus-text.ts";
import type { XidCounts } from "./xid-counts.ts";

/** One look at one card, or at one MIG instance. Null: nobody told it; it is never taken for 0. */
export interface GpuSample {
  /** Who told it. An agent tells of no XID, whatever the card's codes are. */
  readonly teller: "exporter" | "agent";
  readonly host: string;
  readonly index: number | null;
  readonly uuid: string | null;
  /** The exporter's `GPU_I_ID`. */
  readonly instance: string | null;
  /** 0 to 100. */
  readonly utilization: number | null;
  readonly memoryUsedMib: number | null;
  readonly memoryFreeMib: number | null;
  readonly temperatureC: number | null;
  readonly powerW: number | null;
  /** Since the driver was loaded; a card that has power moves it. */
  readonly energyMj: number | null;
  /** Uncorrectable errors since the driver was loaded. */
  readonly eccDoubleBit: number | null;
  readonly rowRemapFailed: boolean | null;
  readonly throttleReasons: number | null;
  /** Codes that the gauge holds; empty where it reads 0, null where there is none: some versions leave it out while all is well. */
  readonly xids: readonly number[] | null;
  /** How often each code came within the exporter's last minutes; empty where it counted none. */
  readonly xidsOfWindow: XidCounts | null;
  /** And since it began; null also where it counted none. */
  readonly xidsInTotal: XidCounts | null;
  /** What an agent found wrong with it; false where it found nothing wrong. */
  readonly sick: string | false | null;
  /** The newest time that the page gives for it, where it gives one. */
  readonly stampMs: number | null;
}

type CountField = "xidsOfWindow" | "xidsInTotal";
type Field = Exclude<
  keyof GpuSample,
  "teller" | "host" | "index" | "uuid" | "instance" | "xids" | CountField | "sick" | "stampMs"
>;
type Signal = Field | CountField | "activity" | "xid";

/** Today's names, and those that the exporter's next release announces. `GPU_UTIL_RATIO` is left out: nobody knows its scale. */
const SIGNALS: ReadonlyMap<string, Signal> = new Map([
  ["DCGM_FI_DEV_GPU_UTIL", "utilization"],
  ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "activity"],
  ["DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "activity"],
  ["DCGM_FI_DEV_FB_USED", "memoryUsedMib"],
  ["DCGM_FI_DEV_FB_FREE", "memoryFreeMib"],
  ["DCGM_FI_DEV_GPU_TEMP", "temperatureC"],
  ["DCGM_FI_DEV_GPU_TEMP_CELSIUS", "temperatureC"],
  ["DCGM_FI_DEV_POWER_USAGE", "powerW"],
  ["DCGM_FI_DEV_BOARD_POWER_WATTS", "powerW"],
  ["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energyMj"],
  ["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "eccDoubleBit"],
  ["DCGM_FI_DEV_ROW_REMAP_FAILURE", "rowRemapFailed"],
  ["DCGM_FI_DEV_ROW_REMAP_FAILED", "rowRemapFailed"],
  ["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "throttleReasons"],
  ["DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "throttleReasons"],
  ["DCGM_FI_DEV_XID_ERRORS", "xid"],
  ["DCGM_FI_DEV_XID_ERROR", "xid"],
  ["DCGM_EXP_XID_ERRORS_COUNT", "xidsOfWindow"],
  ["DCGM_EXP_XID_ERRORS_TOTAL", "xidsInTotal"],
]);

export const isGpuSignal = (name: string): boolean => SIGNALS.has(name);

/** What a field can hold. Beyond it are the blanks that old releases print (9223372036854775794 and such), and nonsense. */
const RANGES: Readonly<Record<Signal, readonly [number, number]>> = {
  utilization: [0, 100],
  activity: [0, 1],
  memoryUsedMib: [0, 1e9],
  memoryFreeMib: [0, 1e9],
  temperatureC: [-60, 250],
  powerW: [0, 1e5],
  energyMj: [0, 1e18],
  eccDoubleBit: [0, 1e9],
  rowRemapFailed: [0, 1],
  throttleReasons: [0, 1e12],
  xid: [0, 9_999],
  xidsOfWindow: [0, 1e9],
  xidsInTotal: [0, 1e9],
};

const LABEL_CHARS_MAX = 128;
const CARDS_PER_PAGE_MAX = 1_024;
const XIDS_MAX = 16;
const COUNTED_XIDS_MAX = 256;

interface Draft {
  readonly host: string;
  readonly index: number | null;
  readonly uuid: string | null;
  readonly instance: string | null;
  readonly values: Partial<Record<Field | "activity", number>>;
  xids: number[] | null;
  xidsOfWindow: Record<number, number> | null;
  xidsInTotal: Record<number, number> | null;
  stampMs: number | null;
}

/**
 * The cards of an exporter's page. `host` names the rows of a page that tells of one host; on a page of several (one that was
 * federated) the labels tell them apart. `address` stands in where neither is known.
 */
export function readGpuPage(samples: readonly Sample[], host: string | null, address: string): GpuSample[] {
  const told = new Set(samples.map(hostLabel).filter((label) => label !== ""));
  const hostOf = (sample: Sample): string => (told.size > 1 ? null : host) ?? (hostLabel(sample) || address);
  const drafts = new Map<string, Draft>();
  for (const sample of samples) {
    const signal = SIGNALS.get(sample.name);
    if (signal === undefined) continue;
    const draft = draftOf(drafts, sample, hostOf(sample));
    if (draft === undefined) continue;
    if (sample.timestampMs !== undefined) draft.stampMs = Math.max(draft.stampMs ?? -Infinity, sample.timestampMs);
    const [low, high] = RANGES[signal];
    if (!(sample.value >= low && sample.value <= high)) continue;
    if (signal === "xid") noteXid(draft, sample.value);
    else if (signal === "xidsOfWindow" || signal === "xidsInTotal") noteCount(draft, signal, sample);
    else draft.values[signal] = sample.value;
  }
  return spreadWholes([...drafts.values()].map(finish));
}

/** The card itself, whatever it is split into. */
export const cardOf = ({ host, index, uuid }: GpuSample): string => uuid ?? `${host}/${index ?? "?"}`;

/**
 * A split card may have rows of its own beside those of its instances. They tell of the card under all of them, so heat, codes and
 * errors go to each instance; its load is nobody's.
 */
function spreadWholes(samples: readonly GpuSample[]): GpuSample[] {
  const split = new Set(samples.filter(({ instance }) => instance !== null).map(cardOf));
  if (split.size === 0) return [...samples];
  const wholes = new Map(
    samples
      .filter((sample) => sample.instance === null && split.has(cardOf(sample)))
      .map((each) => [cardOf(each), each]),
  );
  return samples.flatMap((sample) => {
    const whole = wholes.get(cardOf(sample));
    if (whole === undefined) return [sample];
    return sample === whole ? [] : [withWhole(sample, whole)];
  });
}

const withWhole = (instance: GpuSample, whole: GpuSample): GpuSample => ({
  ...instance,
  temperatureC: instance.temperatureC ?? whole.temperatureC,
  powerW: instance.powerW ?? whole.powerW,
  energyMj: instance.energyMj ?? whole.energyMj,
  eccDoubleBit: instance.eccDoubleBit ?? whole.eccDoubleBit,
  rowRemapFailed:
    instance.rowRemapFailed === null ? whole.rowRemapFailed : instance.rowRemapFailed || whole.rowRemapFailed === true,
  throttleReasons: instance.throttleReasons ?? whole.throttleReasons,
  xids:
    instance.xids === null || whole.xids === null
      ? (instance.xids ?? whole.xids)
      : [...new Set([...instance.xids, ...whole.xids])],
  xidsOfWindow: higherCounts(instance.xidsOfWindow, whole.xidsOfWindow),
  xidsInTotal: higherCounts(instance.xidsInTotal, whole.xidsInTotal),
  stampMs:
    instance.stampMs === null || whole.stampMs === null
      ? (instance.stampMs ?? whole.stampMs)
      : Math.max(instance.stampMs, whole.stampMs),
});

function higherCounts(one: XidCounts | null, other: XidCounts | null): XidCounts | null {
  if (one === null || other === null) return one ?? other;
  const codes = Object.keys({ ...one, ...other }).map(Number);
  return Object.fromEntries(codes.map((code) => [code, Math.max(one[code] ?? 0, other[code] ?? 0)]));
}

/** A code is a label too, so a new one makes a new series beside the old one: a card may have several. */
function noteXid(draft: Draft, code: number): void {
  draft.xids ??= [];
  if (code > 0 && draft.xids.length < XIDS_MAX && !draft.xids.includes(code)) draft.xids.push(code);
}

/** A card without a code has a count of 0 that names none. One that pods share has the same count once for each of them. */
function noteCount(draft: Draft, field: CountField, { labels, value }: Sample): void {
  const counts = (draft[field] ??= {});
  const label = labels["xid"] ?? "";
  const code = /^\d{1,4}$/.test(label) ? Number(label) : 0;
  if (code === 0 || value === 0) return;
  if (counts[code] === undefined && Object.keys(counts).length >= COUNTED_XIDS_MAX) return;
  counts[code] = Math.max(counts[code] ?? 0, value);
}

const hostLabel = ({ labels }: Sample): string =>
  (labels["Hostname"] ?? labels["hostname"] ?? "").slice(0, LABEL_CHARS_MAX);

function draftOf(drafts: Map<string, Draft>, sample: Sample, host: string): Draft | undefined {
  const { labels } = sample;
  const label = (...names: readonly string[]): string =>
    (names.map((name) => labels[name]).find((value) => value !== undefined && value !== "") ?? "").slice(
      0,
      LABEL_CHARS_MAX,
    );
  const uuid = label("UUID", "uuid");
  const gpu = label("gpu");
  if (uuid === "" && !/^\d{1,4}$/.test(gpu)) return undefined;
  const instance = label("GPU_I_ID");
  const key = JSON.stringify([uuid === "" ? host : "", uuid === "" ? gpu : uuid, instance]);
  const known = drafts.get(key);
  if (known !== undefined || drafts.size >= CARDS_PER_PAGE_MAX) return known;
  const draft: Draft = {
    host,
    index: /^\d{1,4}$/.test(gpu) ? Number(gpu) : null,
    uuid: uuid === "" ? null : uuid,
    instance: instance === "" ? null : instance,
    values: {},
    xids: null,
    xidsOfWindow: null,
    xidsInTotal: null,
    stampMs: null,
  };
  drafts.set(key, draft);
  return draft;
}

function finish({ values, ...who }: Draft): GpuSample {
  return {
    ...who,
    teller: "exporter",
    // Under MIG there is no utilisation, and how long the engines were busy says the same.
    utilization: values.utilization ?? (values.activity === undefined ? null : values.activity * 100),
    memoryUsedMib: values.memoryUsedMib ?? null,
    memoryFreeMib: values.memoryFreeMib ?? null,
    temperatureC: values.temperatureC ?? null,
    powerW: values.powerW ?? null,
    energyMj: values.energyMj ?? null,
    eccDoubleBit: values.eccDoubleBit ?? null,
    rowRemapFailed: values.rowRemapFailed === undefined ? null : values.rowRemapFailed > 0,
    throttleReasons: values.throttleReasons ?? null,
    sick: null,
  };
}

/** What an agent read with its own tools, which need no exporter. */
export const sampleOfReport = (host: string, report: GpuReport): GpuSample => ({
  teller: "agent",
  host,
  index: report.index,
  uuid: report.uuid,
  instance: null,
  utilization: report.utilization === null ? null : report.utilization * 100,
  memoryUsedMib: report.usedMib,
  memoryFreeMib:
    report.memoryMib === null || report.usedMib === null ? null : Math.max(0, report.memoryMib - report.usedMib),
  temperatureC: report.temperatureC,
  powerW: null,
  energyMj: null,
  eccDoubleBit: null,
  rowRemapFailed: null,
  throttleReasons: null,
  xids: null,
  xidsOfWindow: null,
  xidsInTotal: null,
  sick: report.health === "sick" ? (report.healthWhy ?? "its agent says so") : report.health === "ok" ? false : null,
  stampMs: null,
});
