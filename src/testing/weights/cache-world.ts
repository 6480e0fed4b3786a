import { createHash } from "node:crypto";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type WeightsPorts,
  WeightsCache,
  type WeightsView,
  type WeightsWish,
} from "../../agent/weights/weights-cache.ts";
import { agentSection } from "../../contract/agent-schema.ts";
import { resolveAgent, type WeightsSettings } from "../../contract/resolve-agent.ts";
import { parseSource } from "../../decide/weights/source.ts";
import { systemClock } from "../../kernel/clock.ts";
import { KeptLog } from "../kept-log.ts";
import { Watched, within } from "../wait-for.ts";

type Section = Parameters<typeof agentSection.parse>[0];

type WishOver = Partial<Pick<WeightsWish, "holder" | "sha256" | "allowPickle">>;

export interface CacheWorld extends AsyncDisposable {
  /** The cache; its records are beside it. */
  readonly folder: string;
  readonly cache: WeightsCache;
  log(): string;
  /** Asks until it is no longer fetched. */
  fetched(source: string, over?: WishOver): Promise<WeightsView>;
  view(source: string, over?: WishOver): WeightsView;
  until(what: string, condition: () => boolean): Promise<void>;
  /** As an agent that was killed and started again. */
  reopen(over?: Partial<WeightsPorts>): Promise<void>;
  /** Names in the cache, without those that start with a dot. */
  names(): Promise<string[]>;
}

/** Random enough not to repeat, and the same in each run. */
export function someBytes(length: number, seed = 1): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  let state = seed >>> 0 || 1;
  for (let at = 0; at < length; at += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[at] = state >>> 24;
  }
  return bytes;
}
export const sha256Of = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

/** A cache of weights in a folder of its own, over real sockets and files. */
export async function cacheWorld(
  options: { readonly weights?: object; readonly folder?: string; readonly ports?: Partial<WeightsPorts> } = {},
): Promise<CacheWorld> {
  const root = await mkdtemp(join(tmpdir(), "yardmaster-weights-"));
  const folder = options.folder ?? join(root, "weights");
  const section = agentSection.parse({ weights: { reserve: 0, ...options.weights } } as Section);
  const settings: WeightsSettings = resolveAgent(section, "host").weights;
  const state = new Watched();
  const log = new KeptLog();
  const open = (over: Partial<WeightsPorts> = {}): Promise<WeightsCache> =>
    WeightsCache.open({
      clock: systemClock,
      // The shortest pauses.
      random: { next: () => 0 },
      log: log.logger,
      settings,
      env: {},
      folder,
      stateFolder: join(root, "state"),
      bootId: "boot-1",
      ca: undefined,
      onChange: () => state.changed(),
      ...options.ports,
      ...over,
    });
  let cache = await open();
  const view: CacheWorld["view"] = (source, { holder = "r1", sha256 = null, allowPickle = false } = {}) => {
    const parsed = parseSource(source, folder);
    if (parsed.kind === "none" || parsed.kind === "path" || parsed.kind === "unavailable")
      throw new Error(`not fetched: ${source}`);
    return cache.want({ holder, text: source, source: parsed, sha256, allowPickle });
  };
  return {
    folder,
    get cache() {
      return cache;
    },
    log: () => log.text,
    view,
    fetched: async (source, over = {}) => {
      await state.until(`${source} is there or not`, () => view(source, over).kind !== "fetching", 30_000);
      return view(source, over);
    },
    until: (what, condition) => state.until(what, condition),
    reopen: async (over) => {
      await within("the cache closes", cache.close());
      cache = await open(over);
    },
    names: async () => (await readdir(folder)).filter((name) => !name.startsWith(".")),
    [Symbol.asyncDispose]: async () => {
      await within("the cache closes", cache.close());
      await rm(root, { recursive: true, force: true });
    },
  };
}
