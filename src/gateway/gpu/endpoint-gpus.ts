import type { GpuHealthSettings } from "../../contract/gateway-config.ts";
import type { GpuBook } from "../../decide/gpu/gpu-book.ts";
import type { GpuCard } from "../../decide/gpu/gpu-card.ts";
import { parseGpuName, type GpuName } from "../../decide/gpu/gpu-name.ts";
import type { Endpoint } from "../upstreams/endpoint.ts";
import type { Upstream } from "../upstreams/upstream.ts";

/** One name of a card under an endpoint, and what is known by it: nothing while no source has told of it. */
export interface NamedGpu {
  readonly text: string;
  readonly cards: readonly GpuCard[];
}

/** What an upstream's `gpu_ids` come to. */
export interface OldForm {
  /** Null while the host is not known, or where the one page tells of several. */
  readonly host: string | null;
  readonly ties: readonly Endpoint[];
  readonly leaves: readonly Endpoint[];
}

/**
 * Which cards lie under which endpoint. `gpu_ids` name indices without a host, so they hold for the endpoints that run on the
 * host of the only source and for no others: elsewhere the same index is another card.
 */
export class EndpointGpus {
  readonly #book: GpuBook;
  readonly #settings: () => GpuHealthSettings;
  readonly #names = new Map<string, GpuName | undefined>();

  constructor(book: GpuBook, settings: () => GpuHealthSettings) {
    this.#book = book;
    this.#settings = settings;
  }

  of(upstream: Upstream, endpoint: Endpoint): readonly NamedGpu[] {
    return this.#textsOf(upstream, endpoint).map((text) => {
      const name = this.#nameOf(text);
      return { text, cards: name === undefined ? [] : this.#book.find(name) };
    });
  }

  oldForm(upstream: Upstream): OldForm {
    const source = this.#settings().sources.length === 1 ? this.#settings().sources[0] : undefined;
    if (source === undefined) return { host: null, ties: [], leaves: upstream.endpoints };
    const told = this.#book.source(source.name)?.hosts ?? [];
    const hosts = told.length > 0 ? told : source.host === null ? [] : [source.host];
    const places = new Set([source.hostname, ...hosts].map(placeOf));
    const meant = upstream.endpoints.filter(({ gpus }) => gpus.length === 0);
    const isThere = ({ target }: Endpoint): boolean => places.has(placeOf(target.hostname));
    return {
      host: hosts.length === 1 ? (hosts[0] ?? null) : null,
      ties: told.length > 1 ? [] : meant.filter(isThere),
      leaves: told.length > 1 ? meant : meant.filter((endpoint) => !isThere(endpoint)),
    };
  }

  #textsOf(upstream: Upstream, endpoint: Endpoint): readonly string[] {
    const { gpuIds } = upstream.settings;
    if (endpoint.replica === null && this.#settings().placedOnly) return [];
    if (endpoint.gpus.length > 0 || gpuIds.length === 0) return endpoint.gpus;
    const { host, ties } = this.oldForm(upstream);
    return host !== null && ties.includes(endpoint) ? gpuIds.map((index) => `${host}/${index}`) : [];
  }

  #nameOf(text: string): GpuName | undefined {
    if (this.#names.has(text)) return this.#names.get(text);
    if (this.#names.size >= NAMES_MAX) this.#names.clear();
    const name = parseGpuName(text);
    this.#names.set(text, name);
    return name;
  }
}

const NAMES_MAX = 20_000;
const LOOPBACK: ReadonlySet<string> = new Set(["localhost", "127.0.0.1", "::1"]);
const placeOf = (hostname: string): string => (LOOPBACK.has(hostname) ? "localhost" : hostname.toLowerCase());
