import { existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { readArgs, readRoleFlags, ROLE_OPTIONS, ROLE_OPTIONS_HELP, usageError, type RoleFlags } from "../cli/args.ts";
import { EXIT, type Command } from "../cli/cli-io.ts";
import { loadCatalogFile } from "../config/load-catalog.ts";
import type { LoadedConfig } from "../config/load-config.ts";
import { BOARD_ROUTES } from "../contract/board.ts";
import { upstreamConfig } from "../contract/config-schema.ts";
import { CONTROL_LISTEN } from "../contract/control-schema.ts";
import type { GatewayConfig } from "../contract/gateway-config.ts";
import { parseListen } from "../contract/listen-address.ts";
import { resolveUpstream } from "../contract/resolve-config.ts";
import type { Gateway } from "../gateway/gateway.ts";
import type { BatchedLogger } from "../kernel/log.ts";
import { findEngines, type FoundEngine } from "./find-engines.ts";
import { LLAMA_LAUNCHER, setUpLlama } from "./llama-setup.ts";
import { LocalCluster } from "./local-cluster.ts";
import { PROGRAM, type ProcessPorts } from "./process-ports.ts";
import { openLog } from "./role-start.ts";
import { serveGateway, type Beside } from "./serve-gateway.ts";
import {
  makeSessionKey,
  removeAddresses,
  removeOperatorKey,
  writeAddresses,
  writeOperatorKey,
} from "./session-keys.ts";
import { startStandIn, type StandIn } from "./stand-in.ts";
import { placeStarterCatalog, type RealModel } from "./starter-catalog.ts";
import { writeStarterFile, type StarterPrograms } from "./starter-file.ts";
import { programName } from "./program-name.ts";
import { renderWelcome } from "./welcome.ts";

const REAL = { name: "smollm2-135m", slots: 2, contextTokens: 4_096 } as const;
const CATALOG = "catalog.yaml";
/** Catalog and node are known in a moment, on a busy machine in some seconds; a start does not hang on them. */
const CATALOG_MS_MAX = 20_000;
const CATALOG_LOOK_MS = 10;

const HELP = `usage: yardmaster up [options]

Everything on this machine in one process: gateway, control plane and agent. Without a configuration file it writes a first one,
and without a catalog a first catalog; without an upstream in the file it takes an engine that runs here, too. Ctrl-C stops the
engines that it started.

${ROLE_OPTIONS_HELP}  --control-listen HOST:PORT
                          address of the control plane, over the file's (default 127.0.0.1:8300; a free port where --listen
                          asks for one)
  --real-engine           set up (once) a small real engine: llama.cpp with a 135M chat model
`;

interface UpFlags extends RoleFlags {
  readonly controlListen: string | undefined;
  readonly real: boolean;
  /** What the control plane and the agent tell of their everyday work is shown on request alone. */
  readonly quiet: boolean;
}

export const upRole = (ports: () => ProcessPorts): Command => ({
  words: ["up"],
  summary: "everything on this machine in one process",
  help: HELP,
  run: async (args) => {
    const { values, given } = readArgs(
      args,
      { ...ROLE_OPTIONS, "control-listen": { type: "string" }, "real-engine": { type: "boolean", default: false } },
      { names: [] },
    );
    const controlListen = values["control-listen"];
    if (controlListen !== undefined && parseListen(controlListen) === undefined)
      throw usageError("--control-listen: use HOST:PORT, such as 127.0.0.1:8300");
    const flags = readRoleFlags(values, given);
    return runUp({ ...flags, controlListen, real: values["real-engine"], quiet: !given.has("log-level") }, ports());
  },
});

/** A small real engine that was set up here. */
interface Real {
  readonly model: RealModel;
  readonly programs: StarterPrograms;
}

async function runUp(flags: UpFlags, ports: ProcessPorts): Promise<number> {
  if (flags.real && !ports.hasAgents)
    throw usageError("--real-engine: an agent starts the engine, and agents need Linux");
  const real = flags.real ? await setUpReal(ports) : null;
  if (flags.real && real === null) return EXIT.failed;
  const fresh = flags.configGiven ? false : await writeStarterFile(flags.configPath, CATALOG, real?.programs ?? {});
  const up = new Up({ flags, ports, real, fresh });
  return serveGateway({ flags, standIn: true, beside: (loaded) => up.start(loaded) }, ports);
}

async function setUpReal({ io, stop }: ProcessPorts): Promise<Real | null> {
  const onProgress = (line: string): void => io.err(`real engine: ${line}\n`);
  const setup = await setUpLlama({ onProgress }, stop);
  if (setup.kind === "unavailable") {
    io.err(`yardmaster up: the real engine can't be had here: ${setup.why}\n`);
    return null;
  }
  const { folder } = setup;
  return {
    model: { ...REAL, file: join(folder, "model.gguf") },
    programs: { "llama.cpp": [join(folder, "python"), LLAMA_LAUNCHER] },
  };
}

type Valid = Extract<LoadedConfig, { kind: "valid" }>;

interface UpOptions {
  readonly flags: UpFlags;
  readonly ports: ProcessPorts;
  readonly real: Real | null;
  /** The configuration was written just now. */
  readonly fresh: boolean;
}

interface CatalogPlace {
  readonly path: string;
  readonly fresh: boolean;
}

/** What `up` has beside its gateway, and what it tells of all. */
class Up {
  readonly #options: UpOptions;
  readonly #client = makeSessionKey("one-time", "client");
  readonly #operator = makeSessionKey("local-operator", "admin");
  #found: FoundEngine | null = null;
  #standIn: StandIn | null = null;
  #catalog: CatalogPlace | null = null;

  constructor(options: UpOptions) {
    this.#options = options;
  }

  async start(loaded: Valid): Promise<Beside> {
    const { flags, ports, real } = this.#options;
    const { io, version } = ports;
    const alone = loaded.config.upstreams.length === 0;
    this.#found = alone && real === null ? ((await findEngines(io.clock))[0] ?? null) : null;
    const nothing = alone && this.#found === null;
    this.#catalog = await this.#placeCatalog(loaded, nothing && ports.hasAgents);
    if (nothing && !ports.hasAgents) this.#standIn = await startStandIn(io.clock);
    const log = flags.quiet ? quietLog(flags, io) : openLog(flags, io);
    const cluster = await LocalCluster.start({
      loaded,
      listen: flags.controlListen ?? freePort(flags, loaded),
      catalogFile: this.#catalog?.path ?? null,
      withAgent: ports.hasAgents,
      programs: real?.programs ?? {},
      operator: this.#operator,
      io,
      log,
      version,
    });
    const { dataDir } = loaded.config;
    return {
      sessionKeys: [this.#client.key, this.#operator.key],
      onStoredKeys: (keys) => cluster.applyStoredKeys(keys),
      extend: (config) => this.#extend(config, cluster),
      onReady: async (gateway, config) => {
        const model = await this.#modelToTry(gateway, config);
        io.out(
          `yardmaster up ready listen=${gateway.address} board=http://${cluster.address}${BOARD_ROUTES.page} version=${version}\n`,
        );
        await writeOperatorKey(dataDir, this.#operator.secret);
        await writeAddresses(dataDir, { gateway: `http://${gateway.address}`, control: `http://${cluster.address}` });
        io.out(await this.#welcome(gateway, config, cluster, model));
      },
      onConfig: ({ config }) => cluster.applyAuth(config.auth),
      onReload: () => cluster.reload(),
      stop: async () => {
        await cluster.stop(ports.hurry);
        await this.#standIn?.close();
        await Promise.all([removeOperatorKey(dataDir), removeAddresses(dataDir)]);
        log.flush();
      },
    };
  }

  #extend(config: GatewayConfig, cluster: LocalCluster): GatewayConfig {
    const own = this.#standIn?.upstream ?? (this.#found === null ? null : foundUpstream(this.#found));
    const upstreams = config.upstreams.length > 0 || own === null ? config.upstreams : [own];
    return { ...config, upstreams, feed: config.feed ?? cluster.feed };
  }

  /** Where the catalog is. A first one is written where there is none and nothing else would answer. */
  async #placeCatalog({ file }: Valid, wanted: boolean): Promise<CatalogPlace | null> {
    const { flags, real } = this.#options;
    const named = file.control?.catalog.file;
    const path = named ?? join(dirname(flags.configPath), CATALOG);
    if (wanted && (await placeStarterCatalog(path, real?.model ?? null))) return { path, fresh: true };
    return named === undefined && !existsSync(path) ? null : { path, fresh: false };
  }

  /** What the line to try asks for. One of the catalog is waited for until it can be asked for. */
  async #modelToTry(gateway: Gateway, config: GatewayConfig): Promise<string> {
    const { real, ports } = this.#options;
    const own = config.upstreams.find(
      ({ models, kind, catalog }) => models.length > 0 && kind === "openai" && catalog === null,
    );
    const [first] = await this.#catalogModels();
    const named = real === null ? own?.models[0] : undefined;
    if (named !== undefined) return named;
    const model = real?.model.name ?? first;
    if (model === undefined) return "MODEL";
    const { clock } = ports.io;
    const end = clock.mono() + CATALOG_MS_MAX;
    while (!gateway.takes(model) && clock.mono() < end && !ports.stop.aborted)
      await clock.sleep(CATALOG_LOOK_MS, ports.stop).catch(() => {});
    return model;
  }

  async #catalogModels(): Promise<readonly string[]> {
    if (this.#catalog === null) return [];
    const loaded = await loadCatalogFile(this.#catalog.path);
    return loaded.kind === "valid" ? loaded.data.models.map(({ name }) => name) : [];
  }

  async #welcome(gateway: Gateway, config: GatewayConfig, cluster: LocalCluster, model: string): Promise<string> {
    const { flags, fresh } = this.#options;
    const catalog = this.#catalog;
    return renderWelcome({
      program: programName({ program: PROGRAM, folder: resolve("."), path: this.#options.ports.io.env["PATH"] }),
      gateway: gateway.address,
      control: cluster.address,
      board: cluster.boardLink(),
      engine: this.#engines(config, await this.#catalogModels()),
      model,
      key: this.#client.secret,
      config: { path: resolve(flags.configPath), fresh },
      catalog: catalog === null ? null : { ...catalog, path: resolve(catalog.path) },
    });
  }

  #engines(config: GatewayConfig, models: readonly string[]): string {
    const { real } = this.#options;
    const found = this.#found;
    const named = config.upstreams.map(
      ({ id, endpoints }) => `${id} (${endpoints.length} ${endpoints.length === 1 ? "endpoint" : "endpoints"})`,
    );
    if (real !== null) return `a real engine is being started: llama.cpp, serving ${real.model.name}`;
    if (found !== null)
      return `a real engine was found: ${found.engine} at ${found.url}, serving ${found.models.join(", ")}`;
    if (this.#standIn !== null)
      return `agents need Linux, so ${this.#standIn.model} is SIMULATED in this process (its words mean nothing)`;
    if (this.#catalog?.fresh === true)
      return `no real engine was found, so ${models.join(", ")} is SIMULATED (its words mean nothing); with --real-engine a small real one is set up`;
    const ofCatalog = models.length === 0 ? [] : [`of the catalog: ${models.join(", ")}`];
    return [...named, ...ofCatalog].join(", ") || "none: name one in the configuration or the catalog";
  }
}

/** Where everything else takes free ports, the control plane does. */
function freePort({ listen }: RoleFlags, { file }: Valid): string | undefined {
  const wanted = listen === undefined ? undefined : parseListen(listen);
  const named = file.control !== undefined && file.control.listen !== CONTROL_LISTEN;
  return wanted?.port === 0 && !named ? "127.0.0.1:0" : undefined;
}

/** A start is not covered by what is told of it; what goes wrong is told all the same. */
const quietLog = (flags: RoleFlags, io: ProcessPorts["io"]): BatchedLogger =>
  openLog({ ...flags, logLevel: "warn" }, io);

const foundUpstream = ({ engine, models, url }: FoundEngine): GatewayConfig["upstreams"][number] =>
  resolveUpstream(upstreamConfig.parse({ id: "found", engine, models, slots: 4, endpoints: [{ url }] }), {});
