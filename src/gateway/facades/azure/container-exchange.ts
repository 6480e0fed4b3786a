import type { AnalyzeTarget } from "../../../decide/facades/azure/analyze-paths.ts";
import { ContainerRun, type ContainerHead, type RunStep } from "../../../decide/facades/azure/container-run.ts";
import { OperationReader } from "../../../decide/facades/azure/operation.ts";
import { parseRetryAfter } from "../../../decide/http/retry-after.ts";
import { assertNever } from "../../../kernel/assert-never.ts";
import type { Clock, Timer } from "../../../kernel/clock.ts";
import { headerValue, withoutHeaders } from "../../calls/answer-headers.ts";
import type {
  UpstreamClient,
  UpstreamExchange,
  UpstreamHandler,
  UpstreamHead,
  UpstreamRequest,
  UpstreamTarget,
} from "../../upstream/port.ts";
import { brokenOff, Delivery, gather } from "./gather.ts";

/** A submission's way to its container. */
export interface Submission {
  readonly target: UpstreamTarget;
  /** Complete, with the container's own key. */
  readonly request: UpstreamRequest;
  /** What stands before the service's own paths: "" or "/prefix". */
  readonly basePath: string;
  readonly analyze: AnalyzeTarget;
}

/** Of a result. A container's own limit on documents is 500 MB and 2,000 pages, whose result is smaller by far. */
const RESULT_BYTES_MAX = 256 * 1024 * 1024;
/** For one look; a result takes longer than a state. */
const LOOK_MS_MAX = 60_000;
const REMOVAL_MS_MAX = 2_000;
const STILL_PROCESSING = 102;
/** The document's own fault, the same wherever it is sent. */
const DOCUMENT_FAULT = 422;
const CONTAINER_FAULT = 500;
/** Codes by which a container says that the fault was not the document's. */
const OWN_FAULTS: ReadonlySet<string> = new Set(["InternalServerError", "ServiceUnavailable", "Timeout"]);
/** Of the submission's headers, those that speak of its body. */
const OF_THE_BODY: ReadonlySet<string> = new Set(["content-type", "content-length", "content-encoding"]);

/**
 * Submits a document, looks at it until it has ended and hands over what the last look held, as one exchange. `ContainerRun`
 * decides; this sends, waits and counts.
 *
 * Invariants:
 *   X1. At most one request to the container is under way, besides the one that calls the operation off.
 *   X2. Who waits is told once: by the container's own answer to the submission, by a result, or by an error.
 *   X3. An aborted exchange calls its operation off where there is a request for that.
 */
export class ContainerExchange implements UpstreamExchange {
  readonly #client: UpstreamClient;
  readonly #clock: Clock;
  readonly #submission: Submission;
  readonly #handler: UpstreamHandler;
  readonly #run: ContainerRun;
  #under: UpstreamExchange | null = null;
  #timer: Timer | undefined;
  #delivery: Delivery | null = null;
  /** The container's refusal is passed on as it comes. */
  #passing = false;
  #over = false;

  constructor(client: UpstreamClient, clock: Clock, submission: Submission, handler: UpstreamHandler) {
    this.#client = client;
    this.#clock = clock;
    this.#submission = submission;
    this.#handler = handler;
    this.#run = new ContainerRun(submission.analyze);
    this.#submit();
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#timer?.cancel();
    this.#under?.abort();
    this.#delivery?.abort();
    this.#callOff();
  }

  pause(): void {
    if (this.#passing) this.#under?.pause();
    else this.#delivery?.pause();
  }

  resume(): void {
    if (this.#passing) this.#under?.resume();
    else this.#delivery?.resume();
  }

  completeFraming(): Buffer {
    return this.#passing ? (this.#under?.completeFraming() ?? Buffer.alloc(0)) : Buffer.alloc(0);
  }

  #submit(): void {
    const { target, request } = this.#submission;
    const handler = this.#handler;
    let accepted: UpstreamHead | null = null;
    this.#under = this.#client.exchange(target, request, {
      onInformational: (status, rawHeaders) => handler.onInformational(status, rawHeaders),
      onHead: (head) => {
        if (head.status === 202) {
          accepted = head;
          return false;
        }
        this.#passing = true;
        return handler.onHead(head);
      },
      onData: (payload) => (this.#passing ? handler.onData(payload) : true),
      onChunks: (raw, spans) => (this.#passing ? handler.onChunks(raw, spans) : "done"),
      onEnd: (trailers) => {
        if (this.#over) return;
        if (accepted !== null) return this.#act(this.#run.onSubmitted(this.#headOf(accepted)), null);
        this.#over = true;
        handler.onEnd(trailers);
      },
      onError: (error) => {
        if (this.#over) return;
        this.#over = true;
        handler.onError(error);
      },
    });
  }

  #look(path: string): void {
    const reader = new OperationReader();
    this.#under = gather(
      this.#client,
      this.#submission.target,
      this.#about("GET", path),
      { bytesMax: RESULT_BYTES_MAX, onChunk: (chunk) => reader.push(chunk) },
      (gathered) => {
        if (this.#over) return;
        this.#timer?.cancel();
        if (gathered.kind === "tooLarge") {
          this.#callOff();
          return this.#fail("protocol", `the container's result is larger than ${RESULT_BYTES_MAX} bytes`);
        }
        if (gathered.kind === "broken") return this.#act(this.#run.onLooked(undefined, undefined), null);
        const reading = gathered.head.status === 200 ? reader.end() : undefined;
        if (reading?.kind === "under") this.#handler.onInformational(STILL_PROCESSING, []);
        this.#act(this.#run.onLooked(this.#headOf(gathered.head), reading), gathered.chunks);
      },
    );
    this.#timer = this.#clock.after(LOOK_MS_MAX, () => {
      this.#under?.abort();
      if (!this.#over) this.#act(this.#run.onLooked(undefined, undefined), null);
    });
  }

  /** `chunks`: what the look brought. */
  #act(step: RunStep, chunks: readonly Buffer[] | null): void {
    this.#under = null;
    switch (step.kind) {
      case "wait":
        this.#timer = this.#clock.after(step.ms, () => this.#act(this.#run.onWaited(), null));
        return;
      case "look":
        return this.#look(step.path);
      case "succeeded":
        return this.#deliver(200, chunks ?? []);
      case "failed":
        return this.#deliver(OWN_FAULTS.has(step.code) ? CONTAINER_FAULT : DOCUMENT_FAULT, chunks ?? []);
      case "broken":
        this.#callOff();
        return this.#fail(step.failure, step.why);
      case "refused":
        throw new Error("a refusal is passed on as it comes");
      default:
        assertNever(step, "step of a run");
    }
  }

  #deliver(status: number, chunks: readonly Buffer[]): void {
    this.#delivery = new Delivery(this.#handler, status, chunks);
    this.#delivery.start();
  }

  #fail(kind: "reset" | "protocol", why: string): void {
    this.#over = true;
    this.#handler.onError(brokenOff(kind, why));
  }

  /** Nobody waits for what becomes of it: a container that does not hear of it works on for nobody, which its slot accounts for. */
  #callOff(): void {
    const path = this.#run.removal;
    if (path === null) return;
    const { target } = this.#submission;
    const timer = this.#clock.after(REMOVAL_MS_MAX, () => exchange.abort());
    const exchange = gather(this.#client, target, this.#about("DELETE", path), { bytesMax: 65_536 }, () =>
      timer.cancel(),
    );
  }

  /** A request about the operation: with the submission's headers, and without a body. */
  #about(method: "GET" | "DELETE", path: string): UpstreamRequest {
    const { basePath, request } = this.#submission;
    return {
      method,
      path: basePath + path,
      headers: withoutHeaders(request.headers, OF_THE_BODY),
      body: [],
      bodyBytes: undefined,
      freshConnection: false,
    };
  }

  #headOf(head: UpstreamHead): ContainerHead {
    const retryAfter = headerValue(head.rawHeaders, "retry-after");
    return {
      status: head.status,
      retryAfterMs: retryAfter === undefined ? undefined : parseRetryAfter(retryAfter, this.#clock.wall()),
      operationLocation: headerValue(head.rawHeaders, "operation-location"),
    };
  }
}
