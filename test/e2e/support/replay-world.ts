import type { AuditRecord } from "../../../src/contract/audit-event.ts";
import { RawServer, type RawCall } from "../../../src/testing/raw-server.ts";
import { call, startCall, type CallAnswer, type CallOptions, type LiveCall } from "./calls.ts";
import { aCompletion, jsonAnswer } from "./raw-engine.ts";
import { startTestGateway, type TestGateway } from "./test-gateway.ts";

export interface ReplayWorldOptions {
  /** Of the upstream `u`, which serves the model `m`. */
  readonly upstream?: Readonly<Record<string, unknown>>;
  readonly file?: Readonly<Record<string, unknown>>;
  /** Gateways that share what they keep; more than one needs a shared coordination in `file`. */
  readonly gateways?: number;
  readonly keys?: Parameters<typeof startTestGateway>[0]["keys"];
}

/** An engine written by hand behind gateways that keep answers; calls go to the gateways in turn. */
export class ReplayWorld {
  readonly engine: RawServer;
  readonly gateways: readonly TestGateway[];
  /** What the engine does with each call. */
  answer: (call: RawCall, count: number) => void;
  #turn = 0;

  static async open(options: ReplayWorldOptions = {}): Promise<ReplayWorld> {
    const made = Promise.withResolvers<ReplayWorld>();
    const engine = await RawServer.listen({
      onCall: (got) => {
        const count = engine.calls.length;
        void made.promise.then((world) => world.answer(got, count));
      },
    });
    const endpoints = [{ url: `http://127.0.0.1:${engine.port}` }];
    const common = { health: "passive", slots: 256, endpoints, ...options.upstream };
    const gateways: TestGateway[] = [];
    for (let i = 0; i < (options.gateways ?? 1); i += 1) {
      gateways.push(
        await startTestGateway({
          ...(options.file !== undefined && { file: options.file }),
          ...(options.keys !== undefined && { keys: options.keys }),
          upstreams: [
            { id: "u", models: ["m", "m2"], ...common },
            { id: "h", kind: "http", ...common },
          ],
        }),
      );
    }
    made.resolve(new ReplayWorld(engine, gateways));
    return made.promise;
  }

  private constructor(engine: RawServer, gateways: readonly TestGateway[]) {
    this.engine = engine;
    this.gateways = gateways;
    this.answer = numbered;
  }

  /** How many requests have reached the engine. */
  get asked(): number {
    return this.engine.calls.length;
  }

  get gateway(): TestGateway {
    return this.gateways[this.#turn++ % this.gateways.length] as TestGateway;
  }

  call(options: CallOptions): Promise<CallAnswer> {
    return call(this.gateway, options);
  }

  start(options: CallOptions): LiveCall {
    return startCall(this.gateway, options);
  }

  /** The record of an answer's request, at whichever gateway it was. */
  async auditOf(answer: CallAnswer): Promise<AuditRecord | undefined> {
    const id = String(answer.headers["x-request-id"]);
    const pages = await Promise.all(this.gateways.map((gateway) => gateway.audit(`?request_id=${id}`)));
    return pages.flatMap(({ records }) => records)[0];
  }

  /** Of all gateways together. */
  async metric(series: string): Promise<number> {
    const values = await Promise.all(this.gateways.map((gateway) => gateway.metric(series)));
    return values.reduce<number>((sum, value) => sum + (value ?? 0), 0);
  }

  async close(): Promise<void> {
    for (const gateway of this.gateways) await gateway.stop();
    await this.engine[Symbol.asyncDispose]();
  }
}

/** Each answer says the how-manieth it is, so that a replay can be told from a second answer. */
export const numbered = ({ socket }: RawCall, count: number): void =>
  void socket.write(jsonAnswer(aCompletion(`answer ${count}`)));

export const chatBody = (more: Readonly<Record<string, unknown>> = {}): Readonly<Record<string, unknown>> => ({
  model: "m",
  messages: [{ role: "user", content: "hi" }],
  ...more,
});
