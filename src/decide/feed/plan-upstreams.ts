import { upstreamConfig } from "../../contract/config-schema.ts";
import type { FeedEndpoint, FeedModel } from "../../contract/feed.ts";
import type { CatalogStanding, EndpointSettings, UpstreamSettings } from "../../contract/gateway-config.ts";
import { endpointId, parseEndpointUrl, resolveUpstream, usualBatchMax } from "../../contract/resolve-config.ts";
import { Secret } from "../../kernel/secret.ts";
import type { FeedState } from "./take-feed.ts";

/**
 * Which upstreams a gateway has: those of its file, and one for each model of the catalog that the file does not name.
 *
 * Invariants:
 *   P1. An upstream for which nothing changed is the same object as in the plan before.
 *   P2. An id or a served name of the file is the file's; a model that would take it goes without, and a warning says so.
 *   P3. The slots of an upstream that names none are those of its endpoints, draining ones included: calls that run there hold slots.
 */
export interface UpstreamPlan {
  readonly upstreams: readonly UpstreamSettings[];
  readonly warnings: readonly string[];
  readonly made: ReadonlyMap<string, Made>;
}

interface Made {
  readonly from: readonly unknown[];
  readonly settings: UpstreamSettings;
}

const NO_ENDPOINTS: readonly FeedEndpoint[] = [];
/** What an upstream is that only the catalog knows of. */
const DEFAULTS = resolveUpstream(upstreamConfig.parse({ id: "model", model: "model" }), {});

export function planUpstreams(
  file: readonly UpstreamSettings[],
  feed: FeedState | null,
  before: UpstreamPlan | null,
): UpstreamPlan {
  if (feed === null) return { upstreams: file, warnings: [], made: new Map() };
  const draft = new Draft(file, feed, before);
  for (const settings of file) draft.addOfFile(settings);
  for (const model of feed.models.values()) draft.addOfCatalog(model);
  return { upstreams: draft.upstreams, warnings: draft.warnings, made: draft.made };
}

class Draft {
  readonly upstreams: UpstreamSettings[] = [];
  readonly warnings: string[] = [];
  readonly made = new Map<string, Made>();
  readonly #feed: FeedState;
  readonly #before: UpstreamPlan | null;
  readonly #ids: ReadonlySet<string>;
  /** Served names, with whose they are. */
  readonly #names: Map<string, string>;
  /** Models whose replicas an upstream of the file has. */
  readonly #taken: ReadonlySet<string>;

  constructor(file: readonly UpstreamSettings[], feed: FeedState, before: UpstreamPlan | null) {
    this.#feed = feed;
    this.#before = before;
    this.#ids = new Set(file.map(({ id }) => id));
    this.#names = new Map(file.flatMap(({ id, models }) => models.map((name) => [name, id])));
    this.#taken = new Set(file.flatMap(({ catalog }) => (catalog === null ? [] : [catalog.model])));
  }

  addOfFile(settings: UpstreamSettings): void {
    const { catalog } = settings;
    if (catalog === null) {
      this.upstreams.push(settings);
      return;
    }
    const model = this.#feed.models.get(catalog.model);
    if (model === undefined) this.warnings.push(`upstream ${settings.id}: the catalog has no model ${catalog.model}`);
    this.#add(settings, model, this.#claim(model?.aliases ?? [], settings.id));
  }

  addOfCatalog(model: FeedModel): void {
    if (this.#taken.has(model.name)) return;
    if (this.#ids.has(model.name)) {
      this.warnings.push(`model ${model.name} of the catalog is not served: an upstream of the file has this id`);
      return;
    }
    const names = this.#claim([model.name, ...model.aliases], model.name);
    if (names.length > 0) this.#add(null, model, names);
  }

  /** Those of the names that nobody else serves. */
  #claim(names: readonly string[], id: string): string[] {
    return names.filter((name) => {
      const owner = this.#names.get(name);
      if (owner === undefined) this.#names.set(name, id);
      else if (owner !== id)
        this.warnings.push(`${name} of the catalog's model ${id} is not served: upstream ${owner} has this name`);
      return owner === undefined;
    });
  }

  #add(file: UpstreamSettings | null, model: FeedModel | undefined, names: readonly string[]): void {
    const id = file?.id ?? model?.name ?? "";
    const name = file?.catalog?.model ?? model?.name ?? "";
    const endpoints = this.#feed.endpoints.get(name) ?? NO_ENDPOINTS;
    const from = [file, model, endpoints, ...names];
    const last = this.#before?.made.get(id);
    const settings =
      last !== undefined && isSameList(last.from, from) ? last.settings : this.#make(file, model, endpoints, names);
    this.made.set(id, { from, settings });
    this.upstreams.push(settings);
  }

  #make(
    file: UpstreamSettings | null,
    model: FeedModel | undefined,
    replicas: readonly FeedEndpoint[],
    names: readonly string[],
  ): UpstreamSettings {
    const base = file ?? { ...DEFAULTS, id: model?.name ?? "", models: [] };
    const catalog = file?.catalog ?? { ...CATALOG, model: model?.name ?? "" };
    const endpoints = [...base.endpoints, ...endpointsOf(replicas, base.endpoints)];
    const slots = catalog.slots ?? endpoints.reduce((sum, endpoint) => sum + endpoint.slots, 0);
    const batchMax = Math.min(slots, catalog.batchMax ?? usualBatchMax(slots));
    return {
      ...base,
      models: [...base.models, ...names],
      engine: base.engine === "generic" ? (model?.engine ?? base.engine) : base.engine,
      catalog: { ...catalog, standing: standingOf(model, catalog.model) },
      limits: { ...base.limits, slots, batchMax },
      endpoints,
    };
  }
}

const CATALOG = DEFAULTS.catalog ?? { model: "", slots: null, batchMax: null, coldStartMs: 0, standing: null };

const isSameList = (a: readonly unknown[], b: readonly unknown[]): boolean =>
  a.length === b.length && a.every((item, at) => item === b[at]);

const standingOf = (model: FeedModel | undefined, name: string): CatalogStanding =>
  model === undefined
    ? { settled: "stopped", startable: false, why: `the catalog has no model ${name}`, failedStarts: 0 }
    : { settled: model.settled, startable: model.startable, why: model.why, failedStarts: model.failedStarts };

function endpointsOf(replicas: readonly FeedEndpoint[], named: readonly EndpointSettings[]): EndpointSettings[] {
  const taken = new Set(named.map(({ id }) => id));
  const urls = new Set(named.map(({ url }) => url));
  return replicas.flatMap((replica) => {
    const address = parseEndpointUrl(replica.url);
    // One that the file names is that endpoint already, with the file's limits.
    if (address === undefined || urls.has(address.url)) return [];
    const id = endpointId(address, taken);
    taken.add(id);
    return [
      {
        id,
        ...address,
        slots: replica.slots,
        gpus: replica.gpus,
        engine: replica.engine,
        engineKey: new Secret(replica.engineKey),
        replica: { id: replica.replicaId, generation: replica.generation, node: replica.node },
        draining: replica.draining,
      },
    ];
  });
}
