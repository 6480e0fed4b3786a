import { readIso, writeIso } from "./iso-time.ts";

/** How figures are written. What nobody measured is a dash, and never 0. */
export const UNKNOWN = "–";
type Maybe = number | null | undefined;

const isKnown = (value: Maybe): value is number => value !== null && value !== undefined && Number.isFinite(value);

/** Thin spaces between thousands: a comma or point would be read as the decimal sign somewhere. */
export function formatCount(value: Maybe): string {
  if (!isKnown(value)) return UNKNOWN;
  return String(Math.round(value)).replaceAll(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** Three significant digits at most; whole numbers stay whole. */
function short(value: number): string {
  if (value >= 100 || Number.isInteger(value)) return formatCount(value);
  return String(Number(value.toFixed(value >= 10 ? 1 : 2)));
}

export function formatMib(mib: Maybe): string {
  if (!isKnown(mib)) return UNKNOWN;
  if (mib < 1_024) return `${formatCount(mib)} MiB`;
  if (mib < 1_024 * 1_024) return `${short(Number((mib / 1_024).toFixed(1)))} GiB`;
  return `${short(Number((mib / 1_024 / 1_024).toFixed(1)))} TiB`;
}

export const formatBytes = (bytes: Maybe): string => {
  if (!isKnown(bytes)) return UNKNOWN;
  if (bytes < 1_024) return `${formatCount(bytes)} B`;
  if (bytes < 1_024 * 1_024) return `${formatCount(bytes / 1_024)} KiB`;
  return formatMib(bytes / 1_024 / 1_024);
};

/** Of a share from 0 to 1. */
export const formatShare = (share: Maybe): string => (isKnown(share) ? `${Math.round(share * 100)}\u2009%` : UNKNOWN);

export const formatCelsius = (celsius: Maybe): string =>
  isKnown(celsius) ? `${Math.round(celsius)}\u2009°C` : UNKNOWN;

/** Two units at most, the smaller one while it still says something. */
export function formatSeconds(seconds: Maybe): string {
  if (!isKnown(seconds)) return UNKNOWN;
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 10) return whole % 60 === 0 ? `${minutes} min` : `${minutes} min ${whole % 60} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  const days = Math.floor(hours / 24);
  return hours % 24 === 0 || days >= 7 ? `${days} d` : `${days} d ${hours % 24} h`;
}

export function formatMs(ms: Maybe): string {
  if (!isKnown(ms)) return UNKNOWN;
  if (ms < 1_000) return `${ms < 10 && ms > 0 ? short(ms) : Math.round(ms)} ms`;
  if (ms < 60_000) return `${short(Number((ms / 1_000).toFixed(1)))} s`;
  return formatSeconds(ms / 1_000);
}

export const formatRate = (value: Maybe, unit: string): string =>
  isKnown(value) ? `${short(Number(value.toFixed(1)))} ${unit}` : UNKNOWN;

export function formatMoney(amount: Maybe, currency: string | null): string {
  if (!isKnown(amount)) return UNKNOWN;
  const digits = amount !== 0 && Math.abs(amount) < 0.1 ? 4 : 2;
  return `${amount.toFixed(digits)}${currency === null || currency === "" ? "" : `\u2009${currency}`}`;
}

/** The time of day of what happened today, else the day as well; in the reader's own zone. */
export function formatTime(iso: string | null, nowMs: number, offsetMinutes: number): string {
  const at = iso === null ? Number.NaN : readIso(iso);
  if (Number.isNaN(at)) return UNKNOWN;
  const local = (ms: number): string => writeIso(ms - offsetMinutes * 60_000);
  const text = local(at);
  return text.slice(0, 10) === local(nowMs).slice(0, 10)
    ? text.slice(11, 19)
    : `${text.slice(5, 10)} ${text.slice(11, 16)}`;
}

/** Since then, in seconds; null where the time is unknown. A clock that runs behind the server's gives 0. */
export function secondsSince(iso: string | null, nowMs: number): number | null {
  const at = iso === null ? Number.NaN : readIso(iso);
  return Number.isNaN(at) ? null : Math.max(0, (nowMs - at) / 1_000);
}

export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${formatCount(count)} ${count === 1 ? one : many}`;
