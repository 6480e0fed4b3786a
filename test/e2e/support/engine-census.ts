import { readdirSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { systemClock, type Timer } from "../../../src/kernel/clock.ts";

/** One engine process, from when it was first seen to when it was gone. */
export interface EngineRun {
  readonly pid: number;
  readonly startTicks: number;
  /** What it is asked with: another one for each replica and generation. */
  readonly key: string;
  readonly node: string;
  readonly port: number;
  goneAt: number | null;
}

const LOOK_EVERY_MS = 50;
/** Between its making and its first instruction a process shows its parent's environment. */
const LOOKS_MAX = 40;

/**
 * Every simulated engine below one folder that ran while this looked, whoever started it and whatever anybody says of it. A start
 * takes several looks, so none is missed.
 */
export class EngineCensus implements Disposable {
  readonly #folder: string;
  readonly #runs = new Map<string, EngineRun>();
  readonly #others = new Map<string, number>();
  #timer: Timer;

  constructor(folder: string) {
    this.#folder = folder;
    this.#timer = systemClock.after(0, () => this.#turn());
  }

  get runs(): readonly EngineRun[] {
    return [...this.#runs.values()];
  }

  /** Those that are alive now. */
  alive(node?: string): readonly EngineRun[] {
    this.#look();
    return this.runs.filter((run) => run.goneAt === null && (node === undefined || run.node === node));
  }

  /** Engines of replicas for which more than one process was ever started; none, if all is well. */
  startedTwice(): readonly EngineRun[] {
    return this.runs.filter(({ key, pid }) => this.runs.some((other) => other.key === key && other.pid !== pid));
  }

  [Symbol.dispose](): void {
    this.#timer.cancel();
  }

  #turn(): void {
    this.#look();
    this.#timer = systemClock.after(LOOK_EVERY_MS, () => this.#turn());
  }

  #look(): void {
    const seen = new Set<string>();
    for (const name of readdirSync("/proc")) {
      const pid = Number(name);
      const stat = Number.isInteger(pid) ? readStat(pid) : null;
      if (stat === null) continue;
      const id = `${pid}:${stat.startTicks}`;
      seen.add(id);
      // An engine leads its session; the shell that starts it makes others of the same look.
      if (this.#runs.has(id) || stat.session !== pid) continue;
      const looks = this.#others.get(id) ?? 0;
      if (looks >= LOOKS_MAX) continue;
      const found = this.#read(pid);
      if (found === null) this.#others.set(id, looks + 1);
      else this.#runs.set(id, { pid, startTicks: stat.startTicks, goneAt: null, ...found });
    }
    for (const [id, run] of this.#runs) if (!seen.has(id)) run.goneAt ??= systemClock.mono();
    for (const id of this.#others.keys()) if (!seen.has(id)) this.#others.delete(id);
  }

  #read(pid: number): Pick<EngineRun, "key" | "node" | "port"> | null {
    const environment = (readProc(pid, "environ") ?? "").split("\0");
    const value = (name: string): string | undefined =>
      environment.find((line) => line.startsWith(`${name}=`))?.slice(name.length + 1);
    const [home = "", key] = [value("HOME"), value("YARDMASTER_SIM_KEY")];
    const port = /--listen=\S+?:(\d+)/.exec((readProc(pid, "cmdline") ?? "").replaceAll("\0", " "))?.[1];
    if (key === undefined || port === undefined || !home.startsWith(`${this.#folder}/`)) return null;
    return { key, node: basename(home), port: Number(port) };
  }
}

function readProc(pid: number, file: string): string | null {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch {
    return null; // It has ended.
  }
}

/** Null for one that has ended, also where nobody has collected it yet. */
function readStat(pid: number): { readonly session: number; readonly startTicks: number } | null {
  const text = readProc(pid, "stat");
  if (text === null) return null;
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return fields[0] === "Z" || fields[0] === "X" ? null : { session: Number(fields[3]), startTicks: Number(fields[19]) };
}
