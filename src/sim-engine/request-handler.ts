import type { IncomingMessage, ServerResponse } from "node:http";
import { Call, jsonHeaders, typedHeaders } from "./call.ts";
import type { EngineCore } from "./engine-core.ts";
import {
  ENGINE_DEAD,
  errorBody,
  LOADING,
  notFound,
  SHUTTING_DOWN,
  unauthorized,
  type Refusal,
} from "./error-bodies.ts";
import { replyByScript } from "./fixed-reply.ts";
import { runGeneration, type EngineParts } from "./generate.ts";
import { isObject, textOf, type Json, type JsonObject } from "./json.ts";
import { newEntry, RequestRecord, type Ledger } from "./ledger.ts";
import { image, speech, transcription } from "./media.ts";
import { CONTEXT_TOKENS_DEFAULT, type SimEngineOptions } from "./options.ts";
import { pageOf, tagOf, type Page } from "./pages.ts";
import { contextFault, parseGeneration } from "./parse-generation.ts";
import { parsePooling } from "./pooling.ts";
import { needsRawSink, RawSink } from "./raw-sink.ts";
import { parseBody, readBody, type BodyParsed } from "./read-body.ts";
import { needsKey, taskOf, type Task } from "./routes.ts";
import { runMedia, runPooling } from "./run-task.ts";
import { parseAction, Script, type SimAction, type SimRule } from "./script.ts";
import { HttpSink } from "./sink.ts";
import { mix } from "./token-text.ts";

/**
 * From a parsed HTTP head to the place that answers it: key, body, script, state of the engine, task.
 *
 * Invariants:
 *   H1. An inference request is in the ledger from its head on, and ends there exactly once.
 *   H2. Pages (health, metrics, models) are no part of the ledger, so that probes don't disturb its figures.
 */
export class RequestHandler {
  readonly script = new Script();
  readonly #options: SimEngineOptions;
  readonly #core: EngineCore;
  readonly #ledger: Ledger;
  readonly #parts: EngineParts;
  readonly #kill: () => void;
  #dead = false;
  #shuttingDown = false;
  #loading = false;
  #frozenMetrics: Page | undefined;
  #count = 0;

  constructor(options: SimEngineOptions, core: EngineCore, ledger: Ledger, kill: () => void) {
    this.#options = options;
    this.#core = core;
    this.#ledger = ledger;
    this.#kill = kill;
    this.#parts = { core, clock: options.clock, seed: options.seed, model: options.models[0] ?? "" };
  }

  addRule(rule: SimRule): void {
    this.script.add(rule);
    // A state of the whole engine holds from now, not from the next request that happens to come.
    if (rule.match !== undefined && Object.keys(rule.match).length > 0) return;
    this.#enter(rule.do);
    if (rule.do.hangWhileHealthy === true) this.#freeze();
  }

  /** From here every new request is refused as the engine refuses it on its way out. */
  beginShutdown(): void {
    this.#shuttingDown = true;
  }

  clearScript(): void {
    this.script.clear();
    this.#dead = false;
    this.#shuttingDown = false;
    this.#loading = false;
    this.#frozenMetrics = undefined;
    this.#core.thaw();
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "GET", url = "/" } = request;
    const [path = "/", query = ""] = url.split("?", 2);
    const task = method === "POST" ? taskOf(this.#options.dialect, path) : undefined;
    const requestId = textOf(request.headers["x-request-id"] as Json) ?? "";
    const record =
      task === undefined ? this.#unlisted() : this.#ledger.open(requestId, method, path, request.rawHeaders);
    const body = await readBody(request);
    if (body.kind === "lost") {
      record.end("aborted");
      return;
    }
    const bytes = body.kind === "read" ? body.bytes : Buffer.alloc(0);
    const { entry } = record;
    entry.bodyBytes = bytes.length;
    entry.bodySha256 = body.kind === "read" ? body.sha256 : "";
    const parsed: BodyParsed =
      method === "GET" || method === "HEAD"
        ? { kind: "json", body: {} }
        : parseBody(this.#options.dialect, request.headers["content-type"] ?? "", bytes);
    const fields = parsed.kind === "refused" ? {} : parsed.body;
    entry.model = textOf(fields["model"]) ?? "";
    entry.tag = tagOf(fields);
    entry.stream = fields["stream"] === true || fields["stream"] === "true";
    if (task !== undefined) record.join(this.#ledger.groupsOf(entry.model, entry.tag));

    const action = this.#actionFor(path, task !== undefined, entry.model, entry.tag, fields["sim"]);
    const raw = needsRawSink(action);
    const sink = raw ? new RawSink(request, this.#options.clock, action) : new HttpSink(request, response);
    if (!raw && action.closeAfterResponse === true) response.on("finish", () => request.socket.end());
    const call = new Call(this.#options.dialect, action, record, sink);
    if (response.destroyed || request.socket.destroyed) {
      record.end("aborted");
      return;
    }
    this.#enter(action);
    const go = (): void => {
      if (call.gone) return;
      if (body.kind === "tooLarge")
        return this.#refuse(call, { status: 413, type: "BadRequestError", message: "Request body too large" }, false);
      this.#answer(call, request, { method, path, query, task, parsed, requestId });
      // After the answer's work is in the queue: the engine hangs with this request in its slot.
      if (action.hangWhileHealthy === true) this.#freeze();
    };
    const delayMs = (action.delayHeadMs ?? 0) + (path === "/health" ? (action.healthDelayMs ?? 0) : 0);
    if (delayMs > 0) this.#options.clock.after(delayMs, go);
    else go();
  }

  #answer(call: Call, request: IncomingMessage, from: Incoming): void {
    const { dialect } = this.#options;
    const anthropic = from.path === "/v1/messages";
    if (!this.#keyFits(request, from.path)) return this.#refuse(call, unauthorized(dialect), anthropic);
    if (this.#loading && dialect === "llama.cpp") return this.#refuse(call, LOADING, anthropic);
    if (from.task === undefined) return this.#page(call, from);
    if (replyByScript(call, call.record.entry.stream)) return undefined;
    if (from.parsed.kind === "refused") return this.#refuse(call, from.parsed.refusal, anthropic);
    const { body } = from.parsed;
    const model = textOf(body["model"]);
    if (dialect === "vllm" && model !== undefined && !this.#options.models.includes(model)) {
      return this.#refuse(
        call,
        {
          status: 404,
          type: "NotFoundError",
          message: `The model \`${model}\` does not exist. Valid aliases: ${this.#options.models.join(", ")}.`,
          param: "model",
        },
        anthropic,
      );
    }
    if (this.#dead) return this.#refuse(call, ENGINE_DEAD, anthropic);
    if (this.#shuttingDown) return this.#refuse(call, dialect === "vllm" ? SHUTTING_DOWN : LOADING, anthropic);
    this.#run(call, from.task, from.parsed, this.#idFor(from.requestId, body));
  }

  #run(call: Call, task: Task, parsed: Exclude<BodyParsed, { kind: "refused" }>, id: string): void {
    const { dialect } = this.#options;
    const context = this.#options.contextTokens ?? CONTEXT_TOKENS_DEFAULT;
    switch (task.kind) {
      case "generation": {
        const outcome = parseGeneration(dialect, task.of, parsed.body, context);
        if (outcome.kind === "refused") return this.#refuse(call, outcome.refusal, task.of === "messages");
        return runGeneration(this.#parts, call, outcome.request, id);
      }
      case "pooling": {
        const outcome = parsePooling(dialect, task.of, parsed.body);
        if (outcome.kind === "refused") return this.#refuse(call, outcome.refusal, false);
        const fault = contextFault(dialect, outcome.request.promptTokens, context);
        if (fault !== undefined) return this.#refuse(call, fault, false);
        return runPooling(this.#parts, call, outcome.request, id);
      }
      case "media": {
        if (task.of !== "transcription")
          return runMedia(this.#parts, call, task.of === "speech" ? speech(parsed.body) : image(parsed.body));
        if (parsed.kind === "form") return runMedia(this.#parts, call, transcription(parsed.form));
        return this.#refuse(
          call,
          { status: 400, type: "Bad Request", message: "a form with a file is needed", param: "body.file" },
          false,
        );
      }
    }
  }

  #page(call: Call, from: Incoming): void {
    const { dialect } = this.#options;
    const { action } = call;
    if (from.path === "/health" && action.healthStatus !== undefined)
      return call.reply(action.healthStatus, jsonHeaders(dialect, action.healthStatus), "");
    if (from.path === "/metrics" && action.metricsBody !== undefined)
      return call.reply(200, typedHeaders(dialect, "text/plain; version=0.0.4"), action.metricsBody);
    if (replyByScript(call, false) || action.hangNoHead === true) return undefined;
    const body = from.parsed.kind === "refused" ? {} : from.parsed.body;
    const page =
      this.#frozenMetrics !== undefined && from.path === "/metrics"
        ? this.#frozenMetrics
        : pageOf(
            this.#options,
            this.#core,
            { method: from.method, path: from.path, query: new URLSearchParams(from.query), body },
            this.#dead,
          );
    switch (page.kind) {
      case "empty":
        return call.reply(
          page.status,
          dialect === "vllm" ? ["server", "uvicorn", "vary", "Origin"] : ["Server", "llama.cpp"],
          "",
        );
      case "json":
        return call.json(page.status, page.value);
      case "text":
        return call.reply(200, [...typedHeaders(dialect, page.type), ...page.headers], page.text);
      case "wrongMethod":
        return call.reply(
          405,
          [...jsonHeaders(dialect, 405), "allow", page.allow],
          JSON.stringify({ detail: "Method Not Allowed" }),
        );
      case "unknown":
        return this.#unknown(call, from);
    }
  }

  #unknown(call: Call, from: Incoming): void {
    const { dialect } = this.#options;
    if (dialect === "vllm" && taskOf(dialect, from.path) !== undefined) {
      return call.reply(
        405,
        [...jsonHeaders(dialect, 405), "allow", "POST"],
        JSON.stringify({ detail: "Method Not Allowed" }),
      );
    }
    const stored = /^\/v1\/responses\/([^/]+)/.exec(from.path)?.[1];
    if (dialect === "vllm" && stored !== undefined) {
      return this.#refuse(
        call,
        {
          status: 404,
          type: "invalid_request_error",
          message: `Response with id '${stored}' not found.`,
          param: "response_id",
        },
        false,
      );
    }
    return this.#refuse(call, notFound(dialect), false);
  }

  #actionFor(path: string, inference: boolean, model: string, tag: string, own: Json | undefined): SimAction {
    const scripted = this.script.take({ path, inference, model, tag });
    const parsed = isObject(own) ? parseAction(own) : undefined;
    if (parsed?.kind === "wrong")
      return {
        status: 400,
        body: { error: { message: `sim: ${parsed.message}`, type: "sim", param: "sim", code: 400 } },
      };
    return { ...scripted, ...parsed?.value };
  }

  /** States that outlive the request which set them. */
  #enter(action: SimAction): void {
    if (action.loading === true) this.#loading = true;
    if (action.shuttingDown === true) this.#shuttingDown = true;
    if (action.engineDead !== true || this.#dead) return;
    this.#dead = true;
    // llama.cpp is one process: when it dies there is nobody left to answer.
    if (this.#options.dialect === "llama.cpp") this.#kill();
    else this.#core.failAll("dead");
  }

  #freeze(): void {
    if (this.#core.frozen) return;
    this.#core.freeze();
    this.#frozenMetrics = pageOf(
      this.#options,
      this.#core,
      { method: "GET", path: "/metrics", query: new URLSearchParams(), body: {} },
      false,
    );
  }

  #keyFits(request: IncomingMessage, path: string): boolean {
    const { apiKey, dialect } = this.#options;
    if (apiKey === undefined || !needsKey(dialect, path)) return true;
    if (request.headers.authorization === `Bearer ${apiKey}`) return true;
    return dialect === "llama.cpp" && request.headers["x-api-key"] === apiKey;
  }

  #refuse(call: Call, refusal: Refusal, anthropic: boolean): void {
    call.json(refusal.status, errorBody(this.#options.dialect, refusal, anthropic));
  }

  #idFor(requestId: string, body: JsonObject): string {
    this.#count += 1;
    if (this.#options.dialect === "vllm") {
      const given = requestId !== "" ? requestId : textOf(body["request_id"]);
      if (given !== undefined && given !== "") return given;
    }
    const hex = (salt: number): string =>
      mix(this.#options.seed + salt, this.#count)
        .toString(16)
        .padStart(8, "0");
    return hex(1) + hex(2);
  }

  #unlisted(): RequestRecord {
    const entry = newEntry({ id: "", method: "", path: "", headers: [], openedMs: 0 });
    return new RequestRecord(entry, this.#options.clock, [], () => {});
  }
}

interface Incoming {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly task: Task | undefined;
  readonly parsed: BodyParsed;
  readonly requestId: string;
}
