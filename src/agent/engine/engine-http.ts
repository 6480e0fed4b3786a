import type { Probe } from "../../decide/agent/launch/launch-plan.ts";
import type { HealthStage } from "../../decide/agent/start-progress.ts";
import type { Clock } from "../../kernel/clock.ts";
import { request } from "../../kernel/node-builtins.ts";
import type { Secret } from "../../kernel/secret.ts";

/** Asks an engine on this node: for its health, and for one tiny inference. */
export interface EngineAddress {
  readonly host: string;
  readonly port: number;
  readonly key: Secret;
}

export type EngineAnswer =
  | { readonly kind: "status"; readonly status: number }
  /** Nobody listens there. */
  | { readonly kind: "refused" }
  | { readonly kind: "silent" };

const BODY_BYTES_MAX = 1024 * 1024;

/** Never rejects. The body is read to its end, so that a broken answer is no answer. */
export function askEngine(
  clock: Clock,
  at: EngineAddress,
  call: { readonly path: string; readonly body?: unknown; readonly timeoutMs: number },
): Promise<EngineAnswer> {
  return new Promise((resolve) => {
    const body = call.body === undefined ? undefined : JSON.stringify(call.body);
    const sent = request({
      host: at.host,
      port: at.port,
      path: call.path,
      method: body === undefined ? "GET" : "POST",
      agent: false,
      headers: {
        authorization: `Bearer ${at.key.reveal()}`,
        ...(body === undefined
          ? {}
          : { "content-type": "application/json", "content-length": Buffer.byteLength(body) }),
      },
    });
    const finish = (answer: EngineAnswer): void => {
      timer.cancel();
      sent.destroy();
      resolve(answer);
    };
    const timer = clock.after(call.timeoutMs, () => finish({ kind: "silent" }));
    sent.on("error", (error) => {
      const refused = "code" in error && (error.code === "ECONNREFUSED" || error.code === "ENOTFOUND");
      finish({ kind: refused ? "refused" : "silent" });
    });
    sent.on("response", (response) => {
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > BODY_BYTES_MAX) finish({ kind: "silent" });
      });
      response.on("end", () => finish({ kind: "status", status: response.statusCode ?? 0 }));
      response.on("error", () => finish({ kind: "silent" }));
    });
    sent.end(body);
  });
}

/** A page that does not exist says nothing against an engine: the inference decides. */
export function readHealth(answer: EngineAnswer): { readonly stage: HealthStage; readonly unwell: boolean } {
  if (answer.kind === "silent") return { stage: "none", unwell: false };
  if (answer.kind === "refused") return { stage: "refused", unwell: true };
  if (answer.status >= 500) return { stage: "answering", unwell: true };
  return { stage: "healthy", unwell: false };
}

/** "other": the engine does not know this kind of call, another may do. */
export function readProbe(answer: EngineAnswer): "serves" | "other" | "notYet" {
  if (answer.kind !== "status") return "notYet";
  if (answer.status === 200) return "serves";
  return answer.status >= 400 && answer.status < 500 && answer.status !== 429 ? "other" : "notYet";
}

/** Whether the engine answers one of the probes; one after another, since each may be a first inference. */
export async function tryInference(
  clock: Clock,
  at: EngineAddress,
  probes: readonly Probe[],
  timeoutMs: number,
): Promise<boolean> {
  if (probes.length === 0) return true;
  for (const { path, body } of probes) {
    const outcome = readProbe(await askEngine(clock, at, { path, body, timeoutMs }));
    if (outcome !== "other") return outcome === "serves";
  }
  return false;
}
