import { LinkBreaker, PROBE_MS, type LinkState } from "../../decide/coordination/link-breaker.ts";
import { replyErrorKind, type ReplyErrorKind } from "../../decide/coordination/reply-error.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { Secret } from "../../kernel/secret.ts";
import { readServerFacts, unsuitable, type ServerFacts } from "./check-server.ts";
import { RedisConnection, type Argument, type Answer, type Reply } from "./redis-connection.ts";
import { loadScript, type Script } from "./script.ts";

export interface RedisSettings {
  readonly url: Secret;
  /** For one whole step: waiting for the connection, the script, and its text sent again where the server forgot it. */
  readonly timeoutMs: number;
  /** Every key and channel begins with it. */
  readonly keyPrefix: string;
}

export interface LinkDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** Each step's outcome, for metrics. */
  readonly onStep?: (script: string, outcome: StepOutcome["kind"]) => void;
}

export type StepOutcome =
  | { readonly kind: "reply"; readonly reply: Reply }
  /** The server refused it; what a script wrote before that stays. */
  | { readonly kind: "refused"; readonly why: ReplyErrorKind; readonly message: string }
  /** It never left this process. */
  | { readonly kind: "notSent"; readonly why: "breakerOpen" | "notConnected" | "closed" }
  /** It left, and no answer came in time: it may be done, or be done later. */
  | { readonly kind: "unknown"; readonly why: "timeout" | "lost" };

export interface StepOptions {
  /** Instead of the link's own. */
  readonly timeoutMs?: number;
  /** Also while the breaker is open, if there is a connection: for what gives back. Nobody may wait for it. */
  readonly evenIfOpen?: boolean;
  /** Texts of the reply come as bytes. */
  readonly buffers?: boolean;
}

/** Opening a connection and looking at the server; no request waits for it longer than its own step's time. */
const OPEN_MS = 1_000;
/** Between two looks at the server of a connection that stands. */
const FACTS_MS = 5_000;
/** Probes in a row without an answer after which the connection is taken to be dead though nobody closed it. */
const SILENT_PROBES_MAX = 3;

const PROBE = loadScript(new URL("./probe.lua", import.meta.url));

/**
 * The way to Redis for everything that requests wait for. One connection, one deadline around each step, and a breaker over
 * all of them: a server that is dead, frozen or slow costs a few requests one deadline each, and the others nothing.
 *
 * Invariants:
 *   L1. A step settles within its time and a turn of the event loop, whatever the server does. Its lateness is judged after
 *       the sockets were read, so that a gateway that was busy itself does not blame the server.
 *   L2. Nothing is sent twice, and nothing is kept to be sent later, but for a script's text when the server says that it
 *       does not know the script: that says that nothing was done.
 *   L3. Connections are tried at least PROBE_MS apart.
 *   L4. A connection is used only after its server did what the probe asks.
 *   L5. A step that got no answer in time is followed by a probe at once: a server that leaves it without an answer too is
 *       given up. So a server that stands still is given up after two deadlines, however few ask it, and one that was slow once
 *       is not. A step with less time than the link's own proves nothing by itself.
 */
export class RedisLink {
  readonly settings: RedisSettings;
  readonly #deps: LinkDeps;
  readonly #breaker: LinkBreaker;
  #connection: RedisConnection | null = null;
  #opening = false;
  #triedAt: MonoMs | undefined;
  #timer: Timer | undefined;
  #factsTimer: Timer | undefined;
  #silentProbes = 0;
  #doubting = false;
  #facts: ServerFacts | null = null;
  #unsuitable: string | null = null;
  #closed = false;
  readonly #waiting = new Set<(connection: RedisConnection) => void>();
  readonly #onState = new Set<(state: LinkState) => void>();
  readonly #onConnected = new Set<() => void>();

  constructor(settings: RedisSettings, deps: LinkDeps) {
    this.settings = settings;
    this.#deps = deps;
    this.#breaker = new LinkBreaker(deps.clock.mono());
  }

  /** "closed" is the good state: steps are sent. */
  get state(): LinkState {
    return this.#breaker.state;
  }

  /** Why it is not closed; empty when it is. */
  get reason(): string {
    return this.#breaker.reason;
  }

  get stateSince(): MonoMs {
    return this.#breaker.changedAt;
  }

  /** Of the last server that was seen; null before the first. */
  get facts(): ServerFacts | null {
    return this.#facts;
  }

  /** Why the last server that was seen can never do; null when it can. */
  get unsuitable(): string | null {
    return this.#unsuitable;
  }

  /** Makes the first connection. Resolves when it is there or has failed, after at most about a second. */
  async open(): Promise<void> {
    await this.#reconnect();
  }

  /** The breaker opened or closed; probes are not told. */
  onState(listener: (state: LinkState) => void): Disposable {
    this.#onState.add(listener);
    return { [Symbol.dispose]: () => this.#onState.delete(listener) };
  }

  /** A new connection is in use: the server behind it may be another one, or an emptied one. */
  onConnected(listener: () => void): Disposable {
    this.#onConnected.add(listener);
    return { [Symbol.dispose]: () => this.#onConnected.delete(listener) };
  }

  /** Runs a script as one step. Never rejects. */
  run(
    script: Script,
    keys: readonly string[],
    args: readonly Argument[],
    options: StepOptions = {},
  ): Promise<StepOutcome> {
    const rest = [keys.length, ...keys, ...args];
    return this.#step(script.name, options, (connection) => evaluate(connection, script, rest, options.buffers));
  }

  /** Runs one command as one step. Never rejects. Not for commands that block: they would hold up all other steps. */
  command(name: string, args: readonly Argument[], options: StepOptions = {}): Promise<StepOutcome> {
    return this.#step(name.toLowerCase(), options, (connection) => connection.send(name, args, options.buffers));
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#factsTimer?.cancel();
    this.#connection?.close();
    this.#connection = null;
  }

  #step(
    name: string,
    options: StepOptions,
    ask: (connection: RedisConnection) => Promise<Answer>,
  ): Promise<StepOutcome> {
    const { clock } = this.#deps;
    const guarded = options.evenIfOpen !== true;
    if (this.#closed) return this.#refuse(name, "closed");
    if (guarded && this.#breaker.state !== "closed") return this.#refuse(name, "breakerOpen");
    if (!guarded && this.#connection === null) return this.#refuse(name, "notConnected");
    const startedAt = clock.mono();
    const timeoutMs = options.timeoutMs ?? this.settings.timeoutMs;
    const { promise, resolve } = Promise.withResolvers<StepOutcome>();
    let over = false;
    let sent = false;
    const settle = (outcome: StepOutcome): void => {
      if (over) return;
      over = true;
      timer.cancel();
      this.#waiting.delete(go);
      this.#judge(outcome, clock.mono() - startedAt, timeoutMs >= this.settings.timeoutMs);
      this.#deps.onStep?.(name, outcome.kind);
      resolve(outcome);
    };
    const go = (connection: RedisConnection): void => {
      sent = true;
      ask(connection).then(
        (answer) => settle(outcomeOf(answer)),
        () => settle({ kind: "unknown", why: "lost" }),
      );
    };
    const late = (): void =>
      settle(sent ? { kind: "unknown", why: "timeout" } : { kind: "notSent", why: "notConnected" });
    const timer = clock.after(timeoutMs, () => setImmediate(late));
    if (this.#connection !== null) go(this.#connection);
    else this.#waiting.add(go);
    return promise;
  }

  #refuse(name: string, why: "breakerOpen" | "notConnected" | "closed"): Promise<StepOutcome> {
    this.#deps.onStep?.(name, "notSent");
    return Promise.resolve({ kind: "notSent", why });
  }

  #judge(outcome: StepOutcome, spentMs: number, hadItsTime: boolean): void {
    if (outcome.kind === "reply" || this.#closed) return;
    const silent = outcome.kind === "unknown" && outcome.why === "timeout";
    if (silent) void this.#doubt();
    if (silent && !hadItsTime) return;
    const reason =
      outcome.kind === "refused"
        ? outcome.message.slice(0, 200)
        : outcome.why === "timeout"
          ? `no answer within ${Math.round(spentMs)} ms`
          : "no connection";
    if (this.#breaker.failed(reason, spentMs, this.#deps.random.next(), this.#deps.clock.mono())) this.#moved();
  }

  /** The breaker opened or closed. */
  #moved(): void {
    const { state, reason } = this.#breaker;
    if (state === "closed") this.#deps.log.info("coordination.link", { state: "closed" });
    else this.#deps.log.warn("coordination.link", { state: "open", reason });
    for (const listener of this.#onState) listener(state);
    this.#plan();
  }

  /** Arms the one timer for what comes next: a probe, or a connection. */
  #plan(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#closed) return;
    const { clock, random } = this.#deps;
    const now = clock.mono();
    const { probeAt } = this.#breaker;
    if (probeAt !== undefined) {
      this.#timer = clock.after(Math.max(0, probeAt - now), () => void this.#probe());
    } else if (this.#breaker.state === "closed" && this.#connection === null && !this.#opening) {
      const next = this.#triedAt === undefined ? now : this.#triedAt + PROBE_MS * (1 + random.next() / 4);
      this.#timer = clock.after(Math.max(0, next - now), () => void this.#reconnect());
    }
  }

  async #reconnect(): Promise<void> {
    const { clock, random } = this.#deps;
    const failure = await this.#openConnection();
    if (this.#closed || this.#breaker.state !== "closed") return;
    if (failure === undefined) return;
    this.#breaker.open(failure, random.next(), clock.mono());
    this.#moved();
  }

  async #probe(): Promise<void> {
    const { clock, random } = this.#deps;
    if (!this.#breaker.beginProbe(clock.mono())) {
      this.#plan();
      return;
    }
    const connection = this.#connection;
    const failure = connection === null ? await this.#openConnection() : await this.#tryOut(connection);
    if (this.#closed) return;
    this.#breaker.endProbe(failure, random.next(), clock.mono());
    if (this.#breaker.state === "closed") this.#moved();
    else this.#plan();
  }

  /** Finds out whether a server that left a step without an answer still answers (L5). */
  async #doubt(): Promise<void> {
    const connection = this.#connection;
    if (this.#doubting || connection === null || this.#breaker.state !== "closed") return;
    this.#doubting = true;
    const failure = await this.#tryOut(connection);
    this.#doubting = false;
    if (failure === undefined || this.#closed || this.#breaker.state !== "closed") return;
    // One that broke is replaced; whether that works is told by the next connection.
    if (connection !== this.#connection) return;
    this.#breaker.open(failure, this.#deps.random.next(), this.#deps.clock.mono());
    this.#moved();
  }

  /** Undefined when the connection does what steps need, in the time that steps have. */
  async #tryOut(connection: RedisConnection): Promise<string | undefined> {
    const { keyPrefix, timeoutMs } = this.settings;
    const key = `${keyPrefix}:probe`;
    const answer = await this.#within(evaluate(connection, PROBE, [1, key, "1"]), timeoutMs);
    this.#silentProbes = answer === undefined ? this.#silentProbes + 1 : 0;
    if (this.#silentProbes >= SILENT_PROBES_MAX) connection.close();
    if (answer === undefined) return `no answer within ${timeoutMs} ms`;
    if (answer.kind === "reply") return undefined;
    if (answer.kind === "lost") return "the connection broke";
    this.#unsuitable = unsuitable(answer.message) ?? null;
    return this.#unsuitable ?? answer.message.slice(0, 200);
  }

  /** Undefined when there is a connection that works. */
  async #openConnection(): Promise<string | undefined> {
    const { clock } = this.#deps;
    this.#opening = true;
    this.#triedAt = clock.mono();
    let made: RedisConnection | undefined;
    try {
      made = await RedisConnection.open(this.settings.url, OPEN_MS, clock, () => this.#lost(made));
      return await this.#look(made);
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    } finally {
      this.#opening = false;
    }
  }

  async #look(connection: RedisConnection): Promise<string | undefined> {
    const facts = await this.#within(readServerFacts(connection), OPEN_MS);
    const failure = facts === undefined ? `no answer within ${OPEN_MS} ms` : await this.#tryOut(connection);
    if (
      this.#closed ||
      facts === undefined ||
      connection.over ||
      (failure !== undefined && this.#unsuitable !== null)
    ) {
      connection.close();
      return failure ?? "the connection broke";
    }
    this.#install(connection, facts, failure === undefined);
    return failure;
  }

  #install(connection: RedisConnection, facts: ServerFacts, works: boolean): void {
    this.#learn(facts);
    this.#unsuitable = null;
    this.#silentProbes = 0;
    this.#connection = connection;
    this.#lookAgain(connection);
    if (!works) return;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const go of waiting) go(connection);
    for (const listener of this.#onConnected) listener();
  }

  #learn(facts: ServerFacts): void {
    const before = this.#facts?.unfitForJobs ?? null;
    this.#facts = facts;
    if (facts.unfitForJobs === before) return;
    if (facts.unfitForJobs === null) this.#deps.log.info("coordination.server", { message: "fit for jobs again" });
    else this.#deps.log.warn("coordination.server", { message: `not fit for jobs: ${facts.unfitForJobs}` });
  }

  /** An operator sets a policy while connections stand, and the server tells nobody. */
  #lookAgain(connection: RedisConnection): void {
    this.#factsTimer?.cancel();
    this.#factsTimer = this.#deps.clock.after(FACTS_MS, () => void this.#refreshFacts(connection));
  }

  async #refreshFacts(connection: RedisConnection): Promise<void> {
    const facts =
      this.#breaker.state === "closed" ? await this.#within(readServerFacts(connection), OPEN_MS) : undefined;
    if (this.#closed || connection !== this.#connection) return;
    // A server that is busy or loading tells nothing; what it told before stands.
    if (facts !== undefined && facts.policy !== null) this.#learn(facts);
    this.#lookAgain(connection);
  }

  #lost(connection: RedisConnection | undefined): void {
    if (connection === undefined || connection !== this.#connection) return;
    this.#connection = null;
    this.#plan();
  }

  /** Undefined when it took longer; judged after the sockets were read (L1). */
  #within<T>(work: Promise<T>, ms: number): Promise<T | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<T | undefined>();
    const timer = this.#deps.clock.after(ms, () => setImmediate(() => resolve(undefined)));
    work.then(resolve, reject).finally(() => timer.cancel());
    return promise;
  }
}

/** `rest`: the number of keys, the keys, the arguments. The script's text is sent where the server does not know its hash. */
async function evaluate(
  connection: RedisConnection,
  script: Script,
  rest: readonly Argument[],
  buffers = false,
): Promise<Answer> {
  const answer = await connection.send("EVALSHA", [script.sha, ...rest], buffers);
  if (answer.kind !== "error" || replyErrorKind(answer.message) !== "noScript") return answer;
  return connection.send("EVAL", [script.text, ...rest], buffers);
}

function outcomeOf(answer: Answer): StepOutcome {
  switch (answer.kind) {
    case "reply":
      return answer;
    case "lost":
      return { kind: "unknown", why: "lost" };
    default:
      return { kind: "refused", why: replyErrorKind(answer.message), message: answer.message };
  }
}
