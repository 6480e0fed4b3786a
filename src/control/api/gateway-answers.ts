import { z } from "zod";
import { CONFIG_ID } from "../../contract/config-fields.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { ControlStore } from "../store/control-store.ts";
import type { ClusterView } from "../view/cluster-view.ts";
import { gatewayViews } from "../view/views.ts";
import { type Answer, json } from "./answer.ts";
import type { ActRequest } from "../audit/act-audit.ts";
import { read } from "./catalog-answers.ts";
import { readJson, SMALL_BODY_LIMITS } from "./read-body.ts";

export interface GatewayAnswerPorts {
  readonly clock: Clock;
  readonly store: Pick<ControlStore, "issueGateway" | "listGateways" | "revokeGateway">;
  readonly view: ClusterView;
  /** For gateways of this name that are connected. */
  readonly disconnect: (name: string) => void;
  readonly bounded: <T>(work: Promise<T>) => Promise<T>;
}

export const enrolRequest = z.strictObject({
  name: z.string().regex(CONFIG_ID, "use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit"),
});

/** What the routes below `/v1/gateways` answer. */
export class GatewayAnswers {
  readonly #ports: GatewayAnswerPorts;

  constructor(ports: GatewayAnswerPorts) {
    this.#ports = ports;
  }

  list(): Answer {
    return json({ gateways: gatewayViews(this.#ports.view.gateways()) });
  }

  async credentials(): Promise<Answer> {
    const kept = await this.#ports.bounded(this.#ports.store.listGateways());
    return json({ credentials: kept.map(({ name, author, createdAt }) => ({ name, author, created: createdAt })) });
  }

  /** An earlier credential of the name ends. */
  async enrol({ req, keyId, onRecord }: ActRequest): Promise<Answer> {
    const { clock, store, bounded, disconnect } = this.#ports;
    const { name } = read(enrolRequest, await readJson(req, clock, SMALL_BODY_LIMITS));
    await onRecord(`for gateway ${name}`, 201);
    const credential = await bounded(store.issueGateway(name, keyId));
    if (credential === undefined) throw new YardmasterError("RATE_LIMITED", "there are too many gateways' credentials");
    disconnect(name);
    return json({ name, credential: credential.reveal() }, 201);
  }

  async revoke({ rest, keyId, onRecordOrLater }: ActRequest): Promise<Answer> {
    const { store, bounded, disconnect } = this.#ports;
    await onRecordOrLater();
    if (!(await bounded(store.revokeGateway(rest, keyId))))
      throw new YardmasterError("KEY_UNKNOWN", "no gateway has a credential under this name");
    disconnect(rest);
    return json({ name: rest, revoked: true });
  }
}
