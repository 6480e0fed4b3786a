import { createHmac, randomBytes } from "node:crypto";
import type { ClientRequest } from "node:http";
import type { JobSettings } from "../../contract/gateway-config.ts";
import type { JobRecord } from "../../contract/job.ts";
import { viewJob } from "../../contract/job-view.ts";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import {
  judgeAddress,
  judgeCallbackUrl,
  parseCallbackAllow,
  type CallbackRules,
} from "../../decide/jobs/judge-callback.ts";
import type { Clock } from "../../kernel/clock.ts";
import { judgedLookup, type Resolve } from "../../kernel/judged-lookup.ts";
import { loadHttps, request as httpRequest } from "../../kernel/node-builtins.ts";
import type { Secret } from "../../kernel/secret.ts";
import type { JobMetrics } from "../metrics/job-metrics.ts";

export interface CallbackDeps {
  readonly clock: Clock;
  readonly store: JobStore;
  readonly settings: () => JobSettings;
  readonly metrics: JobMetrics;
  readonly resolve?: Resolve;
}

const SEND_MS_MAX = 5_000;
const LEASE_MS = 15_000;
const REDIRECTS_MAX = 2;
const ANSWER_BYTES_MAX = 64 * 1024;
const NOT_ALLOWED = "the name has an address that is not allowed";
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 307, 308]);

type Sent =
  | { readonly kind: "delivered" }
  | { readonly kind: "failed"; readonly why: string }
  /** It will not be allowed later either. */
  | { readonly kind: "forbidden"; readonly why: string };

/**
 * Tells clients of the ends of their jobs.
 *
 * Invariants:
 *   B1. A connection is made only to an address that was judged, in the very look-up that the connection uses.
 *   B2. Nothing of a client's or an operator's credentials is sent; the body is signed.
 *   B3. All of one try, redirects included, takes no longer than SEND_MS_MAX, and no more than ANSWER_BYTES_MAX are read.
 */
export class CallbackSender {
  readonly #deps: CallbackDeps;
  readonly #open = new Set<ClientRequest>();

  constructor(deps: CallbackDeps) {
    this.#deps = deps;
  }

  /** Never rejects. */
  async send(job: JobRecord): Promise<void> {
    const { store, settings, metrics } = this.#deps;
    const token = randomBytes(12).toString("base64url");
    try {
      const taken = await store.change(job.id, { kind: "takeCallback", token, leaseMs: LEASE_MS });
      if (taken.kind !== "moved") return;
      const sent = await this.#try(taken.job, settings());
      metrics.callback(sent.kind);
      await store.change(
        job.id,
        sent.kind === "delivered"
          ? { kind: "callbackSent", token }
          : { kind: "callbackFailed", token, why: sent.why, final: sent.kind === "forbidden" },
      );
    } catch {
      // The store is away: the claim on the callback runs out, and it is sent again.
    }
  }

  close(): void {
    for (const request of this.#open) request.destroy();
  }

  async #try(job: JobRecord, settings: JobSettings): Promise<Sent> {
    const { callbackSecret } = settings;
    const parsed = parseCallbackAllow(settings.callbackAllow);
    if (callbackSecret === null || parsed.kind === "bad") return { kind: "failed", why: "callbacks are not set up" };
    const { plan: _plan, ...told } = viewJob(job, 0);
    const body = JSON.stringify({ type: `job.${job.state}`, job: told });
    const headers = this.#headers(body, job, callbackSecret);
    const { clock } = this.#deps;
    const endsAt = clock.mono() + SEND_MS_MAX;
    let url = job.callback?.url ?? "";
    for (let hop = 0; hop <= REDIRECTS_MAX; hop += 1) {
      const answer = await this.#post(url, body, headers, parsed.rules, endsAt - clock.mono());
      if (answer.kind !== "redirect") return answer;
      const next = URL.parse(answer.to, url);
      if (next === null) return { kind: "failed", why: "a redirect to what is no URL" };
      url = next.href;
    }
    return { kind: "failed", why: `more than ${REDIRECTS_MAX} redirects` };
  }

  #headers(body: string, job: JobRecord, secret: Secret): Record<string, string> {
    const time = String(Math.floor(this.#deps.clock.wall() / 1000));
    const signature = createHmac("sha256", secret.reveal()).update(`${time}.${body}`).digest("hex");
    return {
      "content-type": "application/json",
      "content-length": String(Buffer.byteLength(body)),
      "user-agent": "yardmaster",
      "x-yardmaster-job": job.id,
      "x-yardmaster-timestamp": time,
      "x-yardmaster-signature": `v1=${signature}`,
    };
  }

  #post(
    text: string,
    body: string,
    headers: Record<string, string>,
    rules: CallbackRules,
    msLeft: number,
  ): Promise<Sent | { readonly kind: "redirect"; readonly to: string }> {
    const verdict = judgeCallbackUrl(text, rules);
    if (verdict.kind === "refused") return Promise.resolve({ kind: "forbidden", why: verdict.why });
    return new Promise((resolve) => {
      const failed = (why: string): void => finish({ kind: "failed", why });
      const request = (verdict.plain ? httpRequest : loadHttps().request)(verdict.url, {
        method: "POST",
        headers,
        agent: false,
        maxHeaderSize: 16 * 1024,
        lookup: judgedLookup((address) => judgeAddress(address, rules), NOT_ALLOWED, this.#deps.resolve),
      });
      const timer = this.#deps.clock.after(Math.max(1, msLeft), () => failed(`no answer within ${SEND_MS_MAX} ms`));
      const finish = (outcome: Sent | { readonly kind: "redirect"; readonly to: string }): void => {
        timer.cancel();
        this.#open.delete(request);
        resolve(outcome);
        request.destroy();
      };
      this.#open.add(request);
      request.on("error", (error) => failed(error.message));
      request.on("close", () => failed("the connection was closed"));
      request.on("response", (response) => {
        const status = response.statusCode ?? 0;
        const { location } = response.headers;
        let bytes = 0;
        response.on("data", (part: Buffer) => {
          bytes += part.length;
          if (bytes > ANSWER_BYTES_MAX) failed("the answer is larger than 64 KiB");
        });
        response.on("error", () => failed("the answer broke off"));
        response.on("end", () => {
          if (REDIRECTS.has(status) && location !== undefined) finish({ kind: "redirect", to: location });
          else if (status >= 200 && status < 300) finish({ kind: "delivered" });
          else failed(`the answer was ${status}`);
        });
      });
      request.end(body);
    });
  }
}
