import type { ProviderSettings } from "../../../contract/provider-settings.ts";
import {
  isSuccess,
  type CloudCall,
  type CloudProtocol,
  type ResultPlace,
} from "../../../decide/overflow/providers/cloud-call.ts";
import type {
  CancelOutcome,
  FetchOutcome,
  FindOutcome,
  PollOutcome,
  PriceQuote,
  ProviderWork,
  SubmitOutcome,
} from "../../../decide/overflow/providers/provider-work.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { askCloud, type CloudReply } from "./cloud-http.ts";
import type { Provider } from "./provider.ts";

/** Of an answer that says something of a task, and of a result that comes with a submission. */
const LOOK_BYTES_MAX = 1024 * 1024;
const SUBMIT_BYTES_MAX = 64 * 1024 * 1024;

export interface CloudPorts {
  readonly clock: Clock;
  /** The value of `Authorization` for a request now; null: none is sent. */
  readonly authorize: () => string | null;
}

/** Speaks to a place over HTTP; what its answers mean is the protocol's to say. */
export class CloudProvider implements Provider {
  readonly #settings: ProviderSettings;
  readonly #protocol: CloudProtocol;
  readonly #ports: CloudPorts;

  constructor(settings: ProviderSettings, protocol: CloudProtocol, ports: CloudPorts) {
    this.#settings = settings;
    this.#protocol = protocol;
    this.#ports = ports;
  }

  price(work: ProviderWork): PriceQuote {
    const plan = this.#protocol.plan(work);
    return plan.kind === "ok" ? plan.quote : { kind: "unpriced", why: plan.why };
  }

  async submit(work: ProviderWork, signal: AbortSignal): Promise<SubmitOutcome> {
    const plan = this.#protocol.plan(work);
    if (plan.kind === "unfit") return { kind: "refused", reason: "input", why: plan.why };
    const { call, quote } = plan;
    // The price may have been changed since it was reserved.
    if (quote.kind === "unpriced") return { kind: "refused", reason: "price", why: quote.why };
    if (quote.micros > work.maxMicros)
      return { kind: "refused", reason: "price", why: "it costs more than may be spent on it" };
    const reply = await this.#call(call, this.#settings.submitMs, SUBMIT_BYTES_MAX, signal);
    switch (reply.kind) {
      case "answer":
        return this.#masked(this.#doubted(this.#protocol.readSubmission(reply.answer, call)));
      case "notSent":
        return { kind: "unavailable", why: `the place can't be reached: ${reply.why}` };
      case "tooLarge":
        return { kind: "unknown", why: "the place's answer is too large" };
      default:
        return { kind: "unknown", why: `no answer to the submission: ${reply.why}` };
    }
  }

  /** A place that is too busy for an answer may have taken the work all the same. */
  #doubted(outcome: SubmitOutcome): SubmitOutcome {
    if (outcome.kind !== "unavailable" || this.#protocol.finding === undefined) return outcome;
    return { kind: "doubtful", why: outcome.why };
  }

  async find(idempotencyKey: string, signal: AbortSignal): Promise<FindOutcome> {
    const { finding } = this.#protocol;
    if (finding === undefined) return { kind: "unknown" };
    const reply = await this.#call(finding.call(idempotencyKey), this.#settings.pollMs, LOOK_BYTES_MAX, signal);
    return reply.kind === "answer" ? finding.read(reply.answer) : { kind: "unknown" };
  }

  async poll(taskId: string, signal: AbortSignal): Promise<PollOutcome> {
    const reply = await this.#call(this.#protocol.look(taskId), this.#settings.pollMs, LOOK_BYTES_MAX, signal);
    if (reply.kind === "answer") return this.#masked(this.#protocol.readLook(reply.answer, taskId));
    return { kind: "unavailable", why: whyNot(reply) };
  }

  async fetch(result: string, bytesMax: number, signal: AbortSignal): Promise<FetchOutcome> {
    let place: ResultPlace = this.#protocol.place(result);
    if (place.kind === "call" && this.#protocol.readPlace !== undefined) {
      const reply = await this.#call(place.call, this.#settings.pollMs, LOOK_BYTES_MAX, signal);
      if (reply.kind !== "answer") return { kind: "unavailable", why: whyNot(reply) };
      place = this.#protocol.readPlace(reply.answer);
    }
    if (place.kind === "unavailable" || place.kind === "lost") return this.#masked(place);
    return readBytes(await this.#bytesAt(place, bytesMax, signal), bytesMax);
  }

  async cancel(taskId: string, signal: AbortSignal): Promise<CancelOutcome> {
    const call = this.#protocol.cancellation(taskId);
    if (call === null) return { kind: "unsupported" };
    const reply = await this.#call(call, this.#settings.pollMs, LOOK_BYTES_MAX, signal);
    if (reply.kind === "answer") return this.#masked(this.#protocol.readCancellation(reply.answer));
    return { kind: "unknown", why: whyNot(reply) };
  }

  #call(call: CloudCall, timeoutMs: number, bytesMax: number, signal: AbortSignal): Promise<CloudReply> {
    const authorization = this.#ports.authorize();
    const headers = authorization === null ? call.headers : { ...call.headers, authorization };
    const url = this.#settings.baseUrl + call.path;
    const { method, body } = call;
    // The key is for one place. Whatever a path is made of, it leads to no other.
    if (URL.parse(url)?.origin !== URL.parse(this.#settings.baseUrl)?.origin)
      return Promise.resolve({ kind: "notSent", why: "the address is not the tier's own" });
    return askCloud(this.#ports.clock, { method, url, headers, body, timeoutMs, bytesMax, publicOnly: false }, signal);
  }

  /** The key goes to the tier's own address alone, and only what the operator named may lie inside the house. */
  #bytesAt(
    place: Extract<ResultPlace, { kind: "url" | "call" }>,
    bytesMax: number,
    signal: AbortSignal,
  ): Promise<CloudReply> {
    const { fetchMs, baseUrl } = this.#settings;
    if (place.kind === "call") return this.#call(place.call, fetchMs, bytesMax, signal);
    const own = URL.parse(place.url)?.origin === URL.parse(baseUrl)?.origin;
    const ask = { method: "GET", url: place.url, headers: {}, body: null, timeoutMs: fetchMs, bytesMax };
    return askCloud(this.#ports.clock, { ...ask, publicOnly: !own }, signal);
  }

  /** Words of the place are stored and shown; it was told the key and may say it back. */
  #masked<T extends { readonly kind: string }>(outcome: T): T {
    if (!("why" in outcome) || typeof outcome.why !== "string") return outcome;
    const { key, signingKey } = this.#settings;
    const once = key?.maskIn(outcome.why) ?? outcome.why;
    return { ...outcome, why: signingKey?.maskIn(once) ?? once };
  }
}

function readBytes(reply: CloudReply, bytesMax: number): FetchOutcome {
  if (reply.kind === "tooLarge") return { kind: "tooLarge", bytesMax };
  if (reply.kind !== "answer") return { kind: "unavailable", why: whyNot(reply) };
  const { answer } = reply;
  if (isSuccess(answer) && answer.body.length > 0)
    return { kind: "fetched", result: { status: 200, contentType: answer.contentType, body: answer.body } };
  const why = isSuccess(answer) ? "the result is empty" : `the result's place answered ${answer.status}`;
  // Addresses of results hold for a time, and say 403 after it.
  if ([403, 404, 410].includes(answer.status)) return { kind: "lost", why };
  return { kind: "unavailable", why, retryAfterMs: answer.retryAfterMs };
}

const whyNot = (reply: Exclude<CloudReply, { kind: "answer" }>): string =>
  reply.kind === "tooLarge" ? "the place's answer is too large" : `the place can't be asked: ${reply.why}`;
