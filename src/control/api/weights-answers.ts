import {
  collectRequest,
  type CollectionAnswer,
  type WeightsAnswer,
  type WeightsListAnswer,
} from "../../contract/control-api.ts";
import type { NodeDoc } from "../../contract/fleet.ts";
import type { CachedWeights } from "../../decide/weights/plan-collection.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { ClusterView, SeenNode } from "../view/cluster-view.ts";
import { type Answer, json } from "./answer.ts";
import type { ActRequest } from "../audit/act-audit.ts";
import { read } from "./catalog-answers.ts";
import { readJson, SMALL_BODY_LIMITS } from "./read-body.ts";
import { orEmpty } from "./restart-answers.ts";

export interface WeightsAnswerPorts {
  readonly clock: Clock;
  readonly view: ClusterView;
  readonly bounded: <T>(work: Promise<T>) => Promise<T>;
}

/** What the routes on the nodes' caches answer. */
export class WeightsAnswers {
  readonly #ports: WeightsAnswerPorts;

  constructor(ports: WeightsAnswerPorts) {
    this.#ports = ports;
  }

  answer(request: ActRequest): Promise<Answer> {
    return request.route.handler === "weights" ? this.#list() : this.#collect(request);
  }

  async #list(): Promise<Answer> {
    const { view, bounded } = this.#ports;
    const [{ cached, held }, names] = await Promise.all([bounded(view.weights()), this.#names()]);
    const body: WeightsListAnswer = { weights: cached.map((one) => shown(one, names)), held };
    return json(body);
  }

  /** Not bounded like a look into the store: it is the nodes that answer. */
  async #collect({ req, keyId, onRecord }: ActRequest): Promise<Answer> {
    const { clock, view } = this.#ports;
    const { damaged } = read(collectRequest, orEmpty(await readJson(req, clock, SMALL_BODY_LIMITS)));
    await onRecord(JSON.stringify({ damaged }));
    const outcome = await view.collectWeights(damaged, keyId);
    if (outcome.kind === "notLeader")
      throw new YardmasterError("NOT_LEADER", "agents obey the leader alone: ask the control plane that leads");
    if (outcome.kind !== "collected")
      throw new YardmasterError("STORE_UNAVAILABLE", "the store did not take the record of it; nothing was asked for");
    const names = await this.#names();
    const asked = outcome.nodes.flatMap((node) => node.asked);
    const body: CollectionAnswer = {
      asked: { nodes: outcome.nodes.length, weights: asked.length, bytes: sumOf(asked.map(({ bytes }) => bytes ?? 0)) },
      nodes: outcome.nodes.map(({ nodeId, results, why }) => ({
        node: names.get(nodeId) ?? nodeId,
        silent: results === null ? (why ?? "it did not answer") : null,
        results: (results ?? []).map((result) => ({
          name: result.name,
          outcome: result.outcome,
          freed_bytes: result.freedBytes,
          why: result.why,
        })),
      })),
    };
    return json(body);
  }

  async #names(): Promise<ReadonlyMap<NodeDoc["id"], string>> {
    const { nodes } = await this.#ports.bounded(this.#ports.view.snapshot());
    return new Map(nodes.map(({ doc }: SeenNode) => [doc.id, doc.name]));
  }
}

const shown = (one: CachedWeights, names: ReadonlyMap<string, string>): WeightsAnswer => ({
  node: names.get(one.nodeId) ?? one.nodeId,
  name: one.name,
  bytes: one.bytes,
  kind: one.kind,
  in_use: one.inUse,
  wanted_by: [...one.wantedBy],
  unwanted: one.isUnwanted,
});
const sumOf = (numbers: readonly number[]): number => numbers.reduce((sum, one) => sum + one, 0);
