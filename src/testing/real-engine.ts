import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import type { Clock } from "../kernel/clock.ts";
import { lastLines, LLAMA_LAUNCHER, type LlamaSetup, setUpLlama } from "../up/llama-setup.ts";

// A real engine for tests: llama.cpp's own HTTP server with a small chat model, as a child process.
// Invariants:
//   E1. The engine never outlives this process, however it ends: it watches its standard input, a pipe held here.
//   E2. A signal meant for this process does not reach the engine, which is in a session of its own.

/** Loading the model takes under a second on an idle machine; far more only where the processors are taken. */
const START_MS_MAX = 120_000;
const HEALTH_POLL_MS = 50;

export interface RealEngineOptions {
  readonly clock: Clock;
  /** Where the engine is set up; the user's cache folder when not given. */
  readonly folder?: string;
  readonly slots: number;
  /** In tokens, shared by the slots. */
  readonly contextTokens: number;
  readonly threads: number;
  /** A free one when not given. */
  readonly port?: number;
  readonly modelName: string;
  readonly apiKey?: string;
  readonly embeddings?: boolean;
  /** What the setup does, line by line, for a person who waits. */
  readonly onProgress: (line: string) => void;
}

export interface RealEngine extends AsyncDisposable {
  readonly url: string;
  readonly pid: number;
  readonly modelName: string;
  /** Settles when the process has ended, with what it ended of: `code 0`, `SIGKILL`. */
  readonly ended: Promise<string>;
  kill(signal: NodeJS.Signals): void;
  /** Ends it at once and waits until it has. */
  close(): Promise<void>;
}

export type RealEngineOutcome =
  | { readonly kind: "running"; readonly engine: RealEngine }
  | Extract<LlamaSetup, { kind: "unavailable" }>;

/** Sets the engine up on first use (127 MB), starts it and waits until it can serve. Throws when it is there but does not run. */
export async function startRealEngine(options: RealEngineOptions, signal: AbortSignal): Promise<RealEngineOutcome> {
  const setup = await setUpLlama(options, signal);
  if (setup.kind === "unavailable") return setup;
  const engine = await launch(setup.folder, options, signal);
  try {
    await untilHealthy(engine, options.clock, signal);
  } catch (error) {
    await engine.close();
    throw error;
  }
  return { kind: "running", engine };
}

async function launch(folder: string, options: RealEngineOptions, signal: AbortSignal): Promise<RealEngine> {
  const child = spawn(`${folder}/python`, [LLAMA_LAUNCHER, ...flags(folder, options)], {
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  });
  child.stdin.on("error", () => {}); // The engine ended first; `ended` tells.
  const tail = lastLines(child.stderr, () => {});
  const ended = new Promise<string>((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("exit", (code, by) => resolve(by ?? `code ${code}`));
  });
  const url = await addressOf(child.stdout, ended, signal).catch(async (error: unknown) => {
    child.kill("SIGKILL");
    const end = await ended;
    throw new Error(`the real engine did not start (${end}): ${tail.join("; ")}`, { cause: error });
  });
  child.unref();
  return handle(child, url, options.modelName, ended);
}

function flags(folder: string, options: RealEngineOptions): string[] {
  const list = ["-m", `${folder}/model.gguf`, "--host", "127.0.0.1", "--port", String(options.port ?? 0)];
  list.push("-np", String(options.slots), "-c", String(options.contextTokens), "-t", String(options.threads));
  list.push("--alias", options.modelName, "--metrics", "--slots", "--until-stdin-closes");
  if (options.apiKey !== undefined) list.push("--api-key", options.apiKey);
  if (options.embeddings === true) list.push("--embeddings");
  return list;
}

function handle(child: ChildProcess, url: string, modelName: string, ended: Promise<string>): RealEngine {
  const close = async (): Promise<void> => {
    child.ref(); // Who waits for the end must not be ended first for want of anything else to do.
    child.kill("SIGKILL");
    await ended;
  };
  return {
    url,
    pid: child.pid ?? 0,
    modelName,
    ended,
    kill: (signal) => void child.kill(signal),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** The launcher prints where it listens as its first line. */
async function addressOf(out: Readable, ended: Promise<string>, signal: AbortSignal): Promise<string> {
  const reader = createInterface({ input: out });
  const ending = ended.then((end): never => {
    throw new Error(`it ended with ${end}`);
  });
  const [line] = await Promise.race([once(reader, "line", { signal }), ending]);
  out.resume();
  const match = /^listening on (http:\S+)$/.exec(String(line));
  if (match?.[1] === undefined) throw new Error(`it said: ${String(line)}`);
  return match[1];
}

/** 503 on every route while the model loads, 200 from then on. */
async function untilHealthy(engine: RealEngine, clock: Clock, signal: AbortSignal): Promise<void> {
  const end = clock.mono() + START_MS_MAX;
  let last = "no answer";
  let over: string | undefined;
  void engine.ended.then((how) => (over = how));
  while (clock.mono() < end) {
    if (over !== undefined) throw new Error(`the real engine ended while it loaded: ${over}`);
    const answer = await fetch(`${engine.url}/health`, { signal }).catch((error: unknown) => String(error));
    if (typeof answer === "string") last = answer;
    else {
      await answer.text();
      if (answer.ok) return;
      last = `status ${answer.status}`;
    }
    await clock.sleep(HEALTH_POLL_MS, signal);
  }
  throw new Error(`the real engine was not ready within ${START_MS_MAX} ms: ${last}`);
}
