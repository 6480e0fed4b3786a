import { formatDay, usageCsv, usageView, USAGE_CURSOR_HEADER, type UsageView } from "../../contract/usage-view.ts";
import { mergeUsage } from "../../decide/usage/merge-usage.ts";
import { parseUsageQuery, renderCursor, type UsageQuery } from "../../decide/usage/parse-usage-query.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Asker, WholeAnswer } from "../board/gateway-asks.ts";
import type { GatewayPeer } from "../board/gateway-peer.ts";
import { type Answer, json } from "./answer.ts";

export interface UsageAnswerPorts {
  readonly clock: Clock;
  readonly peers: () => readonly GatewayPeer[];
  readonly ask: (peer: GatewayPeer, asker: Asker, target: string) => Promise<WholeAnswer>;
}

/** Of one place; beyond it the question is too large for an answer that is made of several. */
const PAGE_ROWS = 2_000;
const PAGES_MAX = 25;

interface Place {
  /** The first one is asked. */
  readonly peers: GatewayPeer[];
}

/**
 * What keys have used at all gateways: those that share a Redis have one count, which is asked for once, the others have one each.
 *
 * Invariants:
 *   U1. No count is in a sum twice: a gateway is asked for its sums only where it is known which place they are from.
 *   U2. A sum that lacks a gateway says so, and where it can't say so it is not given.
 */
export class UsageAnswers {
  readonly #ports: UsageAnswerPorts;
  /** The place that a gateway has named, for as long as it is connected. */
  readonly #places = new WeakMap<GatewayPeer, string>();

  constructor(ports: UsageAnswerPorts) {
    this.#ports = ports;
  }

  /** `from`: that gateway's own answer is the whole of it. */
  async answer(
    asker: Asker,
    params: URLSearchParams,
  ): Promise<{ readonly answer: Answer } | { readonly from: GatewayPeer }> {
    const parsed = parseUsageQuery(params, this.#ports.clock.wall());
    if (parsed.kind === "bad") throw new YardmasterError("BAD_REQUEST", parsed.why);
    const { places, silent } = await this.#placesOf(asker);
    const [only, ...others] = places;
    if (only === undefined)
      throw new YardmasterError("GATEWAY_SILENT", "no gateway has told what its keys have used: try again");
    const [first] = only.peers;
    if (others.length === 0 && silent.length === 0 && first !== undefined) return { from: first };
    return { answer: await this.#merged(asker, parsed.query, places, silent) };
  }

  async #placesOf(asker: Asker): Promise<{ readonly places: readonly Place[]; readonly silent: readonly string[] }> {
    const peers = this.#ports.peers();
    const silent: string[] = [];
    const places = new Map<string, Place>();
    const names = await Promise.all(peers.map((peer) => this.#placeOf(asker, peer)));
    for (const [index, peer] of peers.entries()) {
      const name = names[index];
      const place = name === undefined ? undefined : places.get(name);
      if (name === undefined) silent.push(peer.name);
      else if (place === undefined) places.set(name, { peers: [peer] });
      else place.peers.push(peer);
    }
    return { places: [...places.values()], silent };
  }

  /** Undefined: it does not answer. A question that costs it little names the place. */
  async #placeOf(asker: Asker, peer: GatewayPeer): Promise<string | undefined> {
    const known = this.#places.get(peer);
    if (known !== undefined) return known;
    const today = formatDay(Math.floor(this.#ports.clock.wall() / DAY_MS));
    const view = await this.#read(
      asker,
      peer,
      new URLSearchParams({ from: today, to: today, group: "day", limit: "1" }),
    );
    if (view?.store !== undefined) this.#places.set(peer, view.store);
    return view?.store;
  }

  async #merged(asker: Asker, query: UsageQuery, places: readonly Place[], silent: readonly string[]): Promise<Answer> {
    const views = await Promise.all(places.map((place) => this.#allOf(asker, place, query)));
    const told = new Map<string, UsageView>();
    const missing = [...silent];
    for (const [index, view] of views.entries()) {
      // By the name that came with the sums: a store may have been emptied since.
      if (view !== undefined) told.set(view.store ?? String(index), view);
      else missing.push(...(places[index]?.peers ?? []).map(({ name }) => name));
    }
    if (told.size === 0)
      throw new YardmasterError("GATEWAY_SILENT", `no gateway has told what its keys have used: ${missing.join(", ")}`);
    const { group, after, limit, format } = query;
    const merged = mergeUsage([...told.values()], after, limit);
    const view: UsageView = {
      from: formatDay(query.fromDay),
      to: formatDay(query.toDay),
      group: [...group],
      rows: merged.rows,
      total: merged.total,
      next_cursor: merged.more === null ? null : renderCursor(merged.more),
      unwritten: [...told.values()].reduce((sum, { unwritten }) => sum + unwritten, 0),
      missing,
    };
    if (format === "json") return json(view);
    // A file has no place for it.
    if (missing.length > 0)
      throw new YardmasterError(
        "GATEWAY_SILENT",
        `these gateways did not answer, so the sums lack theirs: ${missing.join(", ")}`,
      );
    const headers = view.next_cursor === null ? {} : { [USAGE_CURSOR_HEADER]: view.next_cursor };
    return { kind: "text", status: 200, text: usageCsv(group, view), type: "text/csv; charset=utf-8", headers };
  }

  /** Of whichever gateway of the place answers. */
  async #allOf(asker: Asker, { peers }: Place, query: UsageQuery): Promise<UsageView | undefined> {
    for (const peer of peers) {
      const view = await this.#allPages(asker, peer, query);
      if (view !== undefined) return view;
    }
    return undefined;
  }

  async #allPages(asker: Asker, peer: GatewayPeer, query: UsageQuery): Promise<UsageView | undefined> {
    const params = new URLSearchParams({
      from: formatDay(query.fromDay),
      to: formatDay(query.toDay),
      group: query.group.join(","),
      limit: String(PAGE_ROWS),
    });
    if (query.keyId !== null) params.set("key_id", query.keyId);
    if (query.model !== null) params.set("model", query.model);
    const rows: UsageView["rows"] = [];
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const view = await this.#read(asker, peer, params);
      if (view === undefined) return undefined;
      rows.push(...view.rows);
      if (view.next_cursor === null) return { ...view, rows };
      params.set("cursor", view.next_cursor);
    }
    throw new YardmasterError(
      "BAD_REQUEST",
      "there is more than one answer can be made of: ask for fewer days or a coarser group",
    );
  }

  async #read(asker: Asker, peer: GatewayPeer, params: URLSearchParams): Promise<UsageView | undefined> {
    try {
      const answer = await this.#ports.ask(peer, asker, `/usage?${params.toString()}`);
      return answer.status === 200 ? usageView.parse(JSON.parse(answer.text)) : undefined;
    } catch {
      return undefined; // It left, or said nothing that can be read.
    }
  }
}

const DAY_MS = 86_400_000;
