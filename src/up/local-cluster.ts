import { hostname } from "node:os";
import { join } from "node:path";
import { Agent, agentFolder } from "../agent/agent.ts";
import { membershipOf } from "../agent/state/agent-state.ts";
import type { CliIo } from "../cli/cli-io.ts";
import { USUAL_CONTROL, USUAL_WEIGHTS_DIR } from "../contract/agent-schema.ts";
import type { LoadedConfig } from "../config/load-config.ts";
import { letsEverybodyIn } from "../config/settle-reload.ts";
import { BOARD_ROUTES } from "../contract/board.ts";
import type { AuthSettings, FeedSettings } from "../contract/gateway-config.ts";
import { parseListen } from "../contract/listen-address.ts";
import { resolveAgent, type AgentSettings } from "../contract/resolve-agent.ts";
import { resolveControl, type ControlSettings } from "../contract/resolve-control.ts";
import { ControlPlane } from "../control/control-plane.ts";
import { messageOf, YardmasterError } from "../kernel/errors.ts";
import type { LogFields, Logger } from "../kernel/log.ts";
import { systemRandom } from "../kernel/random.ts";
import type { Secret } from "../kernel/secret.ts";
import { PROGRAM } from "./process-ports.ts";
import { makeSessionKey, type SessionKey } from "./session-keys.ts";
import type { StarterPrograms } from "./starter-file.ts";

export interface LocalClusterOptions {
  readonly loaded: Extract<LoadedConfig, { kind: "valid" }>;
  /** Over the file's; undefined: as the file says. */
  readonly listen: string | undefined;
  readonly catalogFile: string | null;
  /** False: the control plane alone. */
  readonly withAgent: boolean;
  /** Of engines that the file does not name. */
  readonly programs: StarterPrograms;
  readonly operator: SessionKey;
  readonly io: CliIo;
  readonly log: Logger;
  readonly version: string;
}

/**
 * The control plane and the agent of `up`, in this process. The agent is enrolled by a token that is made here when it has no
 * credential of this control plane's yet; what the gateway shows is made anew with each start and kept nowhere.
 */
export class LocalCluster {
  readonly #plane: ControlPlane;
  readonly #settings: ControlSettings;
  readonly #gateway: SessionKey;
  /** Id of the operator's key. */
  readonly #operator: string;
  readonly #log: FarewellLog;
  readonly #agent: Promise<Agent | null>;

  /** Throws when the store can't be used, or the address is taken. An agent that can't start leaves the rest running. */
  static async start(options: LocalClusterOptions): Promise<LocalCluster> {
    const { loaded, io, version, operator } = options;
    const { auth, dataDir, databaseUrl, signingSecrets, otel } = loaded.config;
    const log = new FarewellLog(options.log);
    const settings = { ...resolveControl(loaded.file.control, options.listen), catalogFile: options.catalogFile };
    if (settings.tls !== null)
      throw new YardmasterError(
        "CONFIG_INVALID",
        "control.tls is for `yardmaster control`: in `up` put a proxy that ends TLS before control.listen",
      );
    const gateway = makeSessionKey("local-gateway", "gateway");
    const sessionKeys = [operator.key, gateway.key];
    const common = { clock: io.clock, log, version, otel, metricsPublic: loaded.file.metrics.public };
    const plane = await ControlPlane.start({
      ...common,
      settings,
      auth,
      sessionKeys,
      dataDir,
      databaseUrl,
      signingSecrets,
    });
    return new LocalCluster(options, { plane, settings, gateway, log });
  }

  private constructor(
    options: LocalClusterOptions,
    made: {
      readonly plane: ControlPlane;
      readonly settings: ControlSettings;
      readonly gateway: SessionKey;
      readonly log: FarewellLog;
    },
  ) {
    this.#plane = made.plane;
    this.#settings = made.settings;
    this.#gateway = made.gateway;
    this.#operator = options.operator.key.id;
    this.#log = made.log;
    const agent = options.withAgent ? this.#startAgent(options) : Promise.resolve(null);
    this.#agent = agent.catch((error: unknown) => {
      this.#log.error("agent.start_failed", { message: messageOf(error) });
      return null;
    });
  }

  /** HOST:PORT at which this machine reaches the control plane. */
  get address(): string {
    const bound = parseListen(this.#plane.address);
    const everywhere = bound?.host === "0.0.0.0" || bound?.host === "::";
    return everywhere ? `127.0.0.1:${bound.port}` : this.#plane.address;
  }

  /** Where a browser on this machine is let in, once, as an administrator. */
  boardLink(): string {
    return `http://${this.address}${this.#plane.boardLink(this.#operator) ?? BOARD_ROUTES.page}`;
  }

  get #url(): string {
    return `ws://${this.address}`;
  }

  /** What the gateway in this process follows. */
  get feed(): FeedSettings {
    return { name: null, controls: [this.#url], token: this.#gateway.secret, tls: { ca: null, cert: null, key: null } };
  }

  /** Keys of a changed configuration. Access is judged by the address that is open. */
  applyAuth(auth: AuthSettings): void {
    if (!letsEverybodyIn(this.#settings.listen, auth)) this.#plane.applyAuth(auth);
    else this.#log.error("config.refused", { message: "auth.mode: `none` is refused while control.listen is open" });
  }

  /** Keys that were made at the gateway in this process: who may come in there may come in here. */
  applyStoredKeys(keys: AuthSettings["keys"]): void {
    this.#plane.applyStoredKeys(keys);
  }

  /** Reads the catalog's file again. */
  reload(): void {
    this.#plane.reload();
  }

  /** The control plane first: it would start elsewhere what the agent then stops. Resolves when the engines have ended. */
  async stop(hurry: AbortSignal): Promise<void> {
    this.#log.leave();
    await this.#plane.stop();
    const agent = await this.#agent;
    await agent?.stop({ engines: "stop" }, hurry);
  }

  async #startAgent(options: LocalClusterOptions): Promise<Agent> {
    const { loaded, io, version } = options;
    const log = this.#log;
    const { dataDir } = loaded.config;
    const settings = this.#agentSettings(options);
    const folder = agentFolder(dataDir);
    return Agent.start({
      settings,
      folder,
      clock: io.clock,
      random: systemRandom,
      log,
      env: io.env,
      version,
      token: await this.#tokenFor(settings.name, folder),
      self: [PROGRAM],
    });
  }

  #agentSettings({ loaded: { file, config }, programs }: LocalClusterOptions): AgentSettings {
    const usual = (file.agent?.control.join() ?? USUAL_CONTROL) === USUAL_CONTROL;
    const settings = resolveAgent(file.agent, hostname(), usual ? { controls: [this.#url] } : {});
    const weightsDir =
      settings.weightsDir === USUAL_WEIGHTS_DIR ? join(config.dataDir, "weights") : settings.weightsDir;
    return { ...settings, weightsDir, programs: { ...programs, ...settings.programs } };
  }

  /** Null while the node's kept credential holds. */
  async #tokenFor(node: string, folder: string): Promise<Secret | null> {
    const member = await membershipOf(folder);
    if (member?.clusterId === this.#plane.clusterId) return null;
    return (await this.#plane.enrolmentToken(node)) ?? null;
  }
}

/** Parts that end together miss each other on the way: from then on only errors are told. */
class FarewellLog implements Logger {
  readonly #log: Logger;
  #leaving = false;

  constructor(log: Logger) {
    this.#log = log;
  }

  leave(): void {
    this.#leaving = true;
  }

  debug(op: string, fields: LogFields = {}): void {
    if (!this.#leaving) this.#log.debug(op, fields);
  }

  info(op: string, fields: LogFields = {}): void {
    if (!this.#leaving) this.#log.info(op, fields);
  }

  warn(op: string, fields: LogFields = {}): void {
    if (!this.#leaving) this.#log.warn(op, fields);
  }

  error(op: string, fields: LogFields = {}): void {
    this.#log.error(op, fields);
  }
}
