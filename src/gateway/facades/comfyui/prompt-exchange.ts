import {
  readHistory,
  readQueue,
  type HistoryReading,
  type OutputFile,
  type QueueReading,
} from "../../../decide/facades/comfyui/prompt-pages.ts";
import { PromptProgress } from "../../../decide/facades/comfyui/prompt-progress.ts";
import { PromptWatch, type WatchStep } from "../../../decide/facades/comfyui/prompt-watch.ts";
import { prepareWorkflow, readAccepted, type Workflow } from "../../../decide/facades/comfyui/workflow.ts";
import type { EndpointSettings } from "../../../contract/gateway-config.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { brokenOff, Delivery } from "../azure/gather.ts";
import type {
  UpstreamClient,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamHandler,
  UpstreamRequest,
  UpstreamTarget,
} from "../../upstream/port.ts";
import type { CalledOff } from "./called-off.ts";
import { ComfySite, otherSites, PAGE_BYTES_MAX, type SiteReply } from "./comfy-site.ts";
import { fetchOutputs } from "./fetch-outputs.ts";
import { promptIdOf, type JobCallName } from "./prompt-id.ts";

export interface PromptPorts {
  readonly client: UpstreamClient;
  readonly clock: Clock;
  readonly calledOff: CalledOff;
}

/** A job's call on its way to its ComfyUI. */
export interface PromptAsk {
  readonly name: JobCallName;
  readonly target: UpstreamTarget;
  /** What stands before ComfyUI's own paths: "" or "/prefix". */
  readonly basePath: string;
  readonly request: UpstreamRequest;
  /** Of the whole upstream. */
  readonly endpoints: readonly EndpointSettings[];
}

interface Place {
  readonly site: ComfySite;
  /** The one that we chose, which an older ComfyUI knows as its client's alone. */
  readonly clientId: string;
  readonly promptId: string;
}

const SUBMIT_MS_MAX = 60_000;
const ELSEWHERE_MS_MAX = 2_000;
/** Prompts of one attempt that failed before: somebody interrupts it again and again. */
const AGAIN_MAX = 8;
const FIND_TRIES_MAX = 3;
const FIND_AGAIN_MS = 500;
const STILL_PROCESSING = 102;
const WORKFLOW_FAULT = 422;
const PASSING_FAULT = 500;

/**
 * Submits a workflow, or goes on with the prompt that an earlier attempt of its job has left, follows it to its end and hands over its
 * outputs, as one exchange. `PromptWatch` decides; this asks, waits and tells.
 *
 * Invariants:
 *   E1. Before a workflow is submitted, its prompt and those of the job's earlier attempts are looked for, at this ComfyUI and at the
 *       upstream's others; one that waits, runs or has ended well is gone on with.
 *   E2. A submission whose answer is lost is looked for, and never sent again here.
 *   E3. Who waits is told once, and never inside a call of its own.
 *   E4. An aborted exchange gives its prompt to `CalledOff`, which knows whether anybody still wants it.
 */
export class PromptExchange implements UpstreamExchange {
  readonly #ports: PromptPorts;
  readonly #ask: PromptAsk;
  readonly #handler: UpstreamHandler;
  readonly #site: ComfySite;
  readonly #gone = new AbortController();
  #place: Place | null = null;
  #delivery: Delivery | null = null;
  #wake: (() => void) | null = null;
  #over = false;

  constructor(ports: PromptPorts, ask: PromptAsk, handler: UpstreamHandler) {
    this.#ports = ports;
    this.#ask = ask;
    this.#handler = handler;
    const { target, basePath, request } = ask;
    this.#site = new ComfySite(ports, { target, basePath, headers: aboutUs(request.headers) });
    setImmediate(() => {
      if (!this.#over) void this.#run();
    });
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#gone.abort();
    this.#delivery?.abort();
    this.#wake?.();
    this.#leave();
  }

  pause(): void {
    this.#delivery?.pause();
  }

  resume(): void {
    this.#delivery?.resume();
  }

  completeFraming(): Buffer {
    return Buffer.alloc(0);
  }

  async #run(): Promise<void> {
    const first = promptIdOf(this.#ask.name);
    const workflow = prepareWorkflow(this.#ask.request.body, first);
    if (workflow.kind === "bad") return this.#deliverError(400, "workflow_invalid", workflow.why);
    const found = await this.#find();
    if (this.#over) return;
    if (found.kind === "failed") return this.#fail(found.failure, found.message);
    const { nodes } = workflow;
    if (found.kind === "found") return this.#follow(found.place, nodes);
    const { promptId } = found;
    const ready = promptId === first ? workflow : prepareWorkflow(this.#ask.request.body, promptId);
    const place = ready.kind === "ok" ? await this.#submit(ready, promptId) : null;
    if (place !== null && !this.#over) await this.#follow(place, nodes);
  }

  // Finding

  /** "fresh": the id under which nothing is known. */
  async #find(): Promise<
    | { readonly kind: "found"; readonly place: Place }
    | { readonly kind: "fresh"; readonly promptId: string }
    | { readonly kind: "failed"; readonly failure: UpstreamFailure; readonly message: string }
  > {
    const { name, endpoints } = this.#ask;
    const queue = await this.#queuePage();
    if (queue.kind === "failed") return queue;
    let fresh = promptIdOf(name);
    for (let again = 1; again <= AGAIN_MAX; again += 1) {
      const state = await this.#stateOf(this.#site, fresh, queue.text);
      if (typeof state !== "string") return { kind: "found", place: state };
      if (state === "unknown") break;
      fresh = promptIdOf(name, again);
    }
    const others = otherSites(this.#site, endpoints).map((place) => new ComfySite(this.#ports, place));
    for (let attempt = name.attempt; attempt >= 1; attempt -= 1) {
      const promptId = promptIdOf({ ...name, attempt });
      const sites = attempt === name.attempt ? others : [this.#site, ...others];
      const places = await Promise.all(sites.map((site) => this.#leftAt(site, promptId)));
      const place = places.find((one) => one !== null);
      if (place !== undefined && place !== null) return { kind: "found", place };
    }
    return { kind: "fresh", promptId: fresh };
  }

  async #queuePage(): Promise<
    | { readonly kind: "page"; readonly text: string }
    | { readonly kind: "failed"; readonly failure: UpstreamFailure; readonly message: string }
  > {
    const ask = { method: "GET", path: "/queue", bytesMax: PAGE_BYTES_MAX, timeoutMs: SUBMIT_MS_MAX } as const;
    const reply = await this.#site.ask(ask, this.#gone.signal);
    if (reply.kind === "answer" && reply.head.status === 200)
      return { kind: "page", text: Buffer.concat(reply.chunks).toString("utf8") };
    const why = reply.kind === "answer" ? `ComfyUI's queue answers ${reply.head.status}` : reply.message;
    return { kind: "failed", failure: reply.kind === "failed" ? failureOf(reply) : "reset", message: why };
  }

  async #leftAt(site: ComfySite, promptId: string): Promise<Place | null> {
    const queue = await site.page("/queue", this.#gone.signal, ELSEWHERE_MS_MAX);
    const state = queue === undefined ? "unknown" : await this.#stateOf(site, promptId, queue);
    return typeof state === "string" ? null : state;
  }

  /** The place of a prompt that can be gone on with. */
  async #stateOf(site: ComfySite, promptId: string, queue: string): Promise<Place | "unknown" | "failed"> {
    const waits = readQueue(queue, promptId);
    if (waits !== undefined && waits.kind !== "absent") return { site, clientId: promptId, promptId: waits.promptId };
    const history = await this.#historyOf(site, promptId);
    if (history?.kind === "succeeded") return { site, clientId: promptId, promptId };
    return history === undefined || history.kind === "absent" ? "unknown" : "failed";
  }

  // Submitting

  async #submit(workflow: Extract<Workflow, { kind: "ok" }>, promptId: string): Promise<Place | null> {
    const site = this.#site;
    // From here on it may be there, whatever becomes of the answer.
    this.#place = { site, clientId: promptId, promptId };
    const ask = { method: "POST", path: "/prompt", bytesMax: PAGE_BYTES_MAX, timeoutMs: SUBMIT_MS_MAX } as const;
    const reply = await site.ask({ ...ask, chunks: workflow.chunks }, this.#gone.signal);
    if (this.#over) return null;
    if (reply.kind === "failed") return this.#findSubmitted(reply, promptId);
    const text = Buffer.concat(reply.chunks);
    if (reply.head.status !== 200) {
      this.#place = null;
      this.#deliver(reply.head.status, "application/json", [text]);
      return null;
    }
    // An older ComfyUI takes no id from others.
    return { site, clientId: promptId, promptId: readAccepted(text.toString("utf8")) ?? promptId };
  }

  async #findSubmitted(reply: Extract<SiteReply, { kind: "failed" }>, promptId: string): Promise<Place | null> {
    const { clock } = this.#ports;
    for (let tries = 0; reply.failure !== "connect" && tries < FIND_TRIES_MAX && !this.#over; tries += 1) {
      const place = await this.#leftAt(this.#site, promptId);
      if (place !== null) return place;
      await clock.sleep(FIND_AGAIN_MS, this.#gone.signal).catch(() => {}); // Aborted: the loop ends.
    }
    if (this.#over) return null;
    this.#fail(failureOf(reply), reply.message);
    return null;
  }

  // Following

  async #follow(place: Place, nodes: number): Promise<void> {
    this.#place = place;
    const watch = new PromptWatch();
    const progress = new PromptProgress(place.promptId, nodes);
    // Not with the gateway: most have no ComfyUI, and the library is large.
    const { ProgressSocket } = await import("./progress-socket.ts");
    if (this.#over) return;
    using socket = new ProgressSocket(place.site, place.clientId, (text) => {
      const said = progress.push(text);
      if (said.percent !== undefined) this.#tell(said.percent);
      if (said.ended) this.#wake?.();
    });
    for (;;) {
      const history = await this.#historyOf(place.site, place.promptId);
      const queue = history?.kind === "absent" ? await this.#queueOf(place) : undefined;
      if (this.#over) return;
      const step = watch.onLook(history, queue, this.#ports.clock.mono(), socket.open);
      if (step.kind !== "wait") return this.#end(step, place);
      if (queue !== undefined && queue.kind !== "absent") this.#tell(null);
      await this.#wait(step.ms);
      if (this.#over) return;
    }
  }

  async #historyOf(site: ComfySite, promptId: string): Promise<HistoryReading | undefined> {
    const page = await site.page(`/history/${encodeURIComponent(promptId)}`, this.#gone.signal);
    return page === undefined ? undefined : readHistory(page, promptId);
  }

  async #queueOf({ site, promptId }: Place): Promise<QueueReading | undefined> {
    const page = await site.page("/queue", this.#gone.signal);
    return page === undefined ? undefined : readQueue(page, promptId);
  }

  /** Work goes on; `percent` where it is known how far. */
  #tell(percent: number | null): void {
    if (this.#over) return;
    this.#handler.onInformational(STILL_PROCESSING, percent === null ? [] : ["x-progress", String(percent)]);
  }

  /** Until the time is over, or the socket says that there is something to see. */
  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        this.#wake = null;
        resolve();
      };
      const timer = this.#ports.clock.after(ms, done);
      this.#wake = done;
    });
  }

  // Ending

  async #end(step: Exclude<WatchStep, { kind: "wait" }>, place: Place): Promise<void> {
    switch (step.kind) {
      case "succeeded":
        return this.#handOver(step.files, step.outputs, place);
      case "failed":
        this.#place = null;
        return this.#deliverError(step.again ? PASSING_FAULT : WORKFLOW_FAULT, "workflow_failed", step.why);
      case "lost":
        return this.#fail("reset", step.why);
      default:
        return step satisfies never;
    }
  }

  async #handOver(files: readonly OutputFile[], outputs: string, { site }: Place): Promise<void> {
    const fetched = await fetchOutputs(site, files, outputs, this.#gone.signal);
    if (this.#over) return;
    this.#place = null;
    if (fetched.kind === "failed") this.#fail(fetched.failure, fetched.why);
    else this.#deliver(200, fetched.contentType, fetched.chunks);
  }

  #deliverError(status: number, type: string, message: string): void {
    this.#deliver(status, "application/json", [Buffer.from(JSON.stringify({ error: { type, message } }))]);
  }

  #deliver(status: number, contentType: string, chunks: readonly Buffer[]): void {
    if (this.#over) return;
    this.#delivery = new Delivery(this.#handler, status, chunks, contentType);
    this.#delivery.start();
  }

  #fail(failure: UpstreamFailure, why: string): void {
    if (this.#over) return;
    this.#over = true;
    this.#gone.abort();
    this.#leave();
    this.#handler.onError({ ...brokenOff("reset", why), kind: failure });
  }

  #leave(): void {
    if (this.#place === null) return;
    this.#ports.calledOff.leave({ ...this.#place, jobId: this.#ask.name.jobId });
    this.#place = null;
  }
}

const failureOf = ({ failure }: Extract<SiteReply, { kind: "failed" }>): UpstreamFailure =>
  failure === "timeout" || failure === "aborted" || failure === "truncated"
    ? "reset"
    : failure === "tooLarge"
      ? "protocol"
      : failure;

/** Of the call's headers, those that every request about it has. */
function aboutUs(raw: readonly string[]): string[] {
  const kept: string[] = ["accept-encoding", "identity"];
  for (let i = 0; i + 1 < raw.length; i += 2)
    if (["host", "authorization", "via", "x-request-id", "traceparent"].includes((raw[i] ?? "").toLowerCase()))
      kept.push(raw[i] ?? "", raw[i + 1] ?? "");
  return kept;
}
