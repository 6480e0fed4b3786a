import { z } from "zod";
import type { RestartPace } from "../../contract/fleet.ts";
import { DEFAULT_PACE } from "../../decide/reconcile/restart-queue.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Leadership } from "../leader/leadership.ts";
import type { ClusterView } from "../view/cluster-view.ts";
import type { Answer } from "./answer.ts";
import type { ActRequest } from "../audit/act-audit.ts";
import { read } from "./catalog-answers.ts";
import { modelNamed, shown, unknownModel } from "./cluster-answers.ts";
import { answerOutcome } from "./outcome.ts";
import { readJson, SMALL_BODY_LIMITS } from "./read-body.ts";

export interface RestartAnswerPorts {
  readonly clock: Clock;
  readonly leadership: Pick<Leadership, "view">;
  readonly view: ClusterView;
  readonly bounded: <T>(work: Promise<T>) => Promise<T>;
}

const COUNT_MAX = 10_000;
const count = z.int().min(0).max(COUNT_MAX);
const paceFields = {
  max_surge: count.default(DEFAULT_PACE.maxSurge),
  max_unavailable: count.default(DEFAULT_PACE.maxUnavailable),
  min_available: count.default(DEFAULT_PACE.minAvailable),
};
export const restartRequest = z.strictObject({ in_place: z.boolean().default(false), ...paceFields });
export const rolloutRequest = z.strictObject({ continue: z.boolean().default(false), ...paceFields });
export const scaleRequest = z.strictObject({ replicas: count });

/** What operators ask for of running replicas. */
export class RestartAnswers {
  readonly #ports: RestartAnswerPorts;

  constructor(ports: RestartAnswerPorts) {
    this.#ports = ports;
  }

  async restart({ req, rest, keyId, onRecord }: ActRequest): Promise<Answer> {
    const { clock, view, leadership, bounded } = this.#ports;
    const asked = read(restartRequest, orEmpty(await readJson(req, clock, SMALL_BODY_LIMITS)));
    const wish = { stopFirst: asked.in_place, pace: paceOf(asked) };
    await onRecord(JSON.stringify(asked));
    const outcome = await bounded(view.restart(rest, wish, keyId));
    const unknown = new YardmasterError("REPLICA_UNKNOWN", `there is no replica ${shown(rest)}`);
    return answerOutcome(leadership, outcome, unknown, (replicas) => ({
      replica: rest,
      restart: replicas.length === 0 ? "under way" : "queued",
    }));
  }

  /** Without a name: what is outdated. */
  async rollout({ req, rest, keyId, onRecord }: ActRequest): Promise<Answer> {
    const { clock, view, leadership, bounded } = this.#ports;
    const asked = read(rolloutRequest, orEmpty(await readJson(req, clock, SMALL_BODY_LIMITS)));
    const model = rest === "" ? null : await this.#modelNamed(rest);
    const pace = paceOf(asked);
    await onRecord(JSON.stringify(asked));
    const outcome = await bounded(view.rollout(model, pace, asked.continue, keyId));
    return answerOutcome(leadership, outcome, unknownModel(rest), (replicas) => ({ replicas }));
  }

  async scale({ req, rest, keyId, onRecord }: ActRequest): Promise<Answer> {
    const { clock, view, leadership, bounded } = this.#ports;
    const { replicas } = read(scaleRequest, await readJson(req, clock, SMALL_BODY_LIMITS));
    const model = await this.#modelNamed(rest);
    await onRecord(JSON.stringify({ replicas }));
    const outcome = await bounded(view.scale(model, replicas, keyId));
    return answerOutcome(leadership, outcome, unknownModel(rest), () => ({ model, replicas }));
  }

  async #modelNamed(name: string): Promise<string> {
    const model = modelNamed(await this.#ports.bounded(this.#ports.view.snapshot()), name);
    if (model === undefined) throw unknownModel(name);
    return model;
  }
}

/** A body that may be left out asks for what is usual then; `null` is none that the routes take. */
export const orEmpty = (body: unknown): unknown => (body === undefined ? {} : body);

function paceOf(asked: {
  readonly max_surge: number;
  readonly max_unavailable: number;
  readonly min_available: number;
}): RestartPace {
  const { max_surge: maxSurge, max_unavailable: maxUnavailable, min_available: minAvailable } = asked;
  if (maxSurge + maxUnavailable === 0)
    throw new YardmasterError(
      "BAD_REQUEST",
      "max_surge and max_unavailable are both 0: nothing could ever be replaced",
    );
  return { maxSurge, maxUnavailable, minAvailable };
}
