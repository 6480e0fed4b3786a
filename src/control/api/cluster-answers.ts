import { z } from "zod";
import { LOG_LINES_MAX } from "../../contract/agent-link.ts";
import { CONFIG_ID } from "../../contract/config-fields.ts";
import type { LeaderAnswer, StatusView } from "../../contract/control-api.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { CatalogKeeper } from "../catalog/catalog-keeper.ts";
import type { CatalogSource } from "../catalog/catalog-source.ts";
import type { Leadership } from "../leader/leadership.ts";
import type { ControlStore } from "../store/control-store.ts";
import type { EventQuery } from "../store/events.ts";
import type { ActionOutcome, ClusterSnapshot, ClusterView } from "../view/cluster-view.ts";
import { gatewayParts, idleParts, statusParts } from "../view/status-parts.ts";
import { gpuViews, modelViews, NO_LEASE, nodeViews, placementView, replicaViews } from "../view/views.ts";
import { type Answer, json } from "./answer.ts";
import { answerOutcome } from "./outcome.ts";
import type { ActRequest } from "../audit/act-audit.ts";
import type { ApiRequest } from "./api-server.ts";
import { read } from "./catalog-answers.ts";
import { readJson, SMALL_BODY_LIMITS } from "./read-body.ts";

export interface ClusterAnswerPorts {
  readonly clock: Clock;
  readonly version: string;
  readonly store: ControlStore;
  readonly leadership: Leadership;
  readonly keeper: CatalogKeeper;
  readonly source: CatalogSource | null;
  readonly view: ClusterView;
  /** Whether an agent is connected as the node of this name. */
  readonly isConnected: (node: string) => boolean;
  readonly bounded: <T>(work: Promise<T>) => Promise<T>;
}

const EVENTS_MAX = 1_000;
const EVENTS_DEFAULT = 100;
const LOG_LINES_DEFAULT = 100;
const REFUSAL_CHARS_MAX = 1_000;

export const tokenRequest = z.strictObject({
  node: z.string().regex(CONFIG_ID, "use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit"),
  /** Also where an agent of this name is connected: its credential ends when the token is used. */
  replace: z.boolean().default(false),
});

/** What the routes on the cluster answer. */
export class ClusterAnswers {
  readonly #ports: ClusterAnswerPorts;

  constructor(ports: ClusterAnswerPorts) {
    this.#ports = ports;
  }

  leader(): LeaderAnswer {
    const { self, role, epoch, leader, storeSilentMs } = this.#ports.leadership.view();
    const silent = storeSilentMs === null ? null : Math.round(storeSilentMs / 1000);
    return {
      self,
      role,
      epoch,
      leader: leader === null ? null : { holder: leader.holder, epoch: leader.epoch },
      store_silent_s: silent,
    };
  }

  async status(): Promise<Answer> {
    const { clock, version, store, source, view } = this.#ports;
    const snapshot = await this.#snapshot();
    const body: StatusView = {
      version,
      cluster_id: store.clusterId,
      store: store.dialect,
      leader: this.leader(),
      catalog: {
        revision: snapshot.catalog.revision,
        models: snapshot.catalog.models.size,
        held: source?.held ?? null,
        refused: source?.refused?.slice(0, REFUSAL_CHARS_MAX) ?? null,
      },
      restored: snapshot.restored,
      ...statusParts(snapshot),
      ...idleParts(snapshot, clock.wall()),
      ...gatewayParts(view.gateways()),
    };
    return json(body);
  }

  async list(what: "nodes" | "gpus" | "models" | "replicas"): Promise<Answer> {
    const snapshot = await this.#snapshot();
    switch (what) {
      case "nodes":
        return json({ nodes: nodeViews(snapshot) });
      case "gpus":
        return json({ gpus: gpuViews(snapshot) });
      case "models":
        return json({ models: modelViews(snapshot) });
      case "replicas":
        return json({ replicas: replicaViews(snapshot) });
      default:
        return assertNever(what, "list");
    }
  }

  async placement(name: string): Promise<Answer> {
    const snapshot = await this.#snapshot();
    const model = modelNamed(snapshot, name);
    const explained = model === undefined ? undefined : await this.#ports.bounded(this.#ports.view.explain(model));
    if (model === undefined || explained === undefined) throw unknownModel(name);
    const notes = snapshot.leaderless === true ? [NO_LEASE, ...explained.notes] : explained.notes;
    return json(placementView(model, { ...explained, notes }, snapshot.nodes));
  }

  async events(query: URLSearchParams): Promise<Answer> {
    const { store, bounded } = this.#ports;
    return json({ events: await bounded(store.events(readEventQuery(query))) });
  }

  async setNode({ rest, keyId, onRecord }: ActRequest, to: "open" | "cordoned" | "draining"): Promise<Answer> {
    const node = await this.#nodeNamed(rest);
    await onRecord(node.name);
    const outcome = await this.#ports.bounded(this.#ports.view.setNode(node.id, to, keyId));
    const body = { node: node.name, cordoned: to !== "open", draining: to === "draining" };
    return this.#done(outcome, unknownNode(rest), body);
  }

  async removeNode({ rest, keyId, onRecord }: ActRequest): Promise<Answer> {
    const node = await this.#nodeNamed(rest);
    await onRecord(node.name);
    const { view, bounded } = this.#ports;
    const outcome = await bounded(view.removeNode(node.id, keyId));
    return this.#done(outcome, unknownNode(rest), { node: node.name, removed: true });
  }

  async retry({ rest, keyId, onRecord }: ActRequest): Promise<Answer> {
    const model = modelNamed(await this.#snapshot(), rest);
    if (model === undefined) throw unknownModel(rest);
    await onRecord(model);
    const outcome = await this.#ports.bounded(this.#ports.view.retry(model, keyId));
    return this.#done(outcome, unknownModel(rest), { model, retried: true });
  }

  async newToken({ req, keyId, onRecord }: ActRequest): Promise<Answer> {
    const { clock, store, bounded } = this.#ports;
    const { node, replace } = read(tokenRequest, await readJson(req, clock, SMALL_BODY_LIMITS));
    if (!replace && this.#ports.isConnected(node))
      throw new YardmasterError(
        "NODE_CONNECTED",
        `an agent is connected as node ${node}: a second machine needs another name; one that takes its place is enrolled with \`--replace\``,
      );
    await onRecord(`for node ${node}${replace ? ", in the place of one that is connected" : ""}`, 201);
    const issued = await bounded(store.issueToken(node, keyId));
    if (issued === undefined) throw new YardmasterError("RATE_LIMITED", "too many enrolment tokens wait to be used");
    const { token, nodeId, expiresAt } = issued;
    return json({ node, node_id: nodeId, token: token.reveal(), expires: expiresAt }, 201);
  }

  async logs({ rest, query }: ApiRequest): Promise<Answer> {
    const lines = readNumber(query, "lines", { fallback: LOG_LINES_DEFAULT, min: 1, max: LOG_LINES_MAX });
    const shard = readNumber(query, "shard", { fallback: 0, min: 0, max: 1_000 });
    // Not bounded like a look into the store: it is the node that answers.
    const found = await this.#ports.view.logs(rest, shard, lines);
    if (found === undefined) throw new YardmasterError("SHARD_UNKNOWN", `there is no replica ${shown(rest)}`);
    return json({ replica: rest, shard, lines: found });
  }

  async confirmRestored({ keyId, onRecord }: ActRequest): Promise<Answer> {
    await onRecord(null);
    const outcome = await this.#ports.bounded(this.#ports.view.confirmRestored(keyId));
    const nothing = new YardmasterError("ACTION_REFUSED", "the store is no old copy: there is nothing to confirm");
    return this.#done(outcome, nothing, { confirmed: true });
  }

  async #snapshot(): Promise<ClusterSnapshot> {
    const { view, bounded, leadership } = this.#ports;
    return { ...(await bounded(view.snapshot())), leaderless: leadership.view().leader === null };
  }

  async #nodeNamed(name: string): Promise<{ readonly id: string; readonly name: string }> {
    const { nodes } = await this.#snapshot();
    const found = nodes.find(({ doc }) => doc.id === name) ?? nodes.find(({ doc }) => doc.name === name);
    if (found === undefined) throw unknownNode(name);
    return { id: found.doc.id, name: found.doc.name };
  }

  #done(outcome: ActionOutcome, unknown: YardmasterError, body: unknown): Answer {
    return answerOutcome(this.#ports.leadership, outcome, unknown, () => body);
  }
}

/** By name or alias. */
export function modelNamed({ catalog }: ClusterSnapshot, name: string): string | undefined {
  if (catalog.models.has(name)) return name;
  return [...catalog.models.values()].find(({ aliases }) => aliases.includes(name))?.name;
}

export const shown = (text: string): string => JSON.stringify(text.slice(0, 200));
export const unknownModel = (name: string): YardmasterError =>
  new YardmasterError("MODEL_UNKNOWN", `the catalog has no model ${shown(name)}`);
const unknownNode = (name: string): YardmasterError =>
  new YardmasterError("NODE_UNKNOWN", `there is no node ${shown(name)}`);

function readNumber(
  query: URLSearchParams,
  name: string,
  { fallback, min, max }: { readonly fallback: number; readonly min: number; readonly max: number },
): number {
  const text = query.get(name);
  const value = text === null ? fallback : /^\d{1,16}$/.test(text) ? Number(text) : -1;
  if (value < min || value > max) throw new YardmasterError("BAD_REQUEST", `${name} must be ${min} to ${max}`);
  return value;
}

function readEventQuery(query: URLSearchParams): EventQuery {
  for (const name of query.keys())
    if (!["limit", "after_seq", "kind"].includes(name))
      throw new YardmasterError("BAD_REQUEST", "unknown parameter; events take limit, after_seq and kind");
  const limit = readNumber(query, "limit", { fallback: EVENTS_DEFAULT, min: 1, max: EVENTS_MAX });
  const afterSeq = readNumber(query, "after_seq", { fallback: 0, min: 0, max: Number.MAX_SAFE_INTEGER });
  const kind = query.get("kind");
  return { limit, ...(query.has("after_seq") ? { afterSeq } : {}), ...(kind === null ? {} : { kind }) };
}
