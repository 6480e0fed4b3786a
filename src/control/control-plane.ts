import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { KeyRing } from "../access/key-ring.ts";
import type { NewEvent } from "../contract/control-event.ts";
import type { DocWrite } from "../contract/fleet.ts";
import type { AuthSettings } from "../contract/gateway-config.ts";
import { formatListen, isLoopback } from "../contract/listen-address.ts";
import type { ControlSettings } from "../contract/resolve-control.ts";
import { countRunning } from "../decide/reconcile/model-counts.ts";
import { assertNever } from "../kernel/assert-never.ts";
import type { Clock, Timer } from "../kernel/clock.ts";
import { messageOf, YardmasterError } from "../kernel/errors.ts";
import type { Logger } from "../kernel/log.ts";
import type { Secret } from "../kernel/secret.ts";
import { openTracer, type TraceSettings } from "../trace/open-tracer.ts";
import type { Tracer } from "../trace/tracer.ts";
import type { Answer } from "./api/answer.ts";
import { ActAudit, type ActRequest } from "./audit/act-audit.ts";
import { type ApiRequest, ApiServer } from "./api/api-server.ts";
import { BoardAnswers, onceLink } from "./api/board-answers.ts";
import { Board } from "./board/board.ts";
import type { GatewayDesk } from "./board/gateway-desk.ts";
import { relay, RelayAnswers } from "./api/relay-answers.ts";
import { CatalogAnswers } from "./api/catalog-answers.ts";
import { ClusterAnswers } from "./api/cluster-answers.ts";
import { GatewayAnswers } from "./api/gateway-answers.ts";
import { RestartAnswers } from "./api/restart-answers.ts";
import { WeightsAnswers } from "./api/weights-answers.ts";
import { readServerTls, type ServerTls } from "./api/server-tls.ts";
import { CatalogKeeper, type CatalogPorts } from "./catalog/catalog-keeper.ts";
import { CatalogReader } from "./catalog/catalog-reader.ts";
import { CatalogSource } from "./catalog/catalog-source.ts";
import { Leadership } from "./leader/leadership.ts";
import type { ControlStore } from "./store/control-store.ts";
import { EventSpool } from "./store/event-spool.ts";
import { type OpenedStore, openStore } from "./store/open-store.ts";
import { LiveCluster } from "./live-cluster.ts";
import { type BoardHandler, type Handler, isBoardHandler, isRelayHandler, type RelayHandler } from "./api/routes.ts";
import { serveUpgrades } from "./api/upgrades.ts";
import type { ActionOutcome, ClusterView } from "./view/cluster-view.ts";

export interface ControlPlaneOptions {
  readonly settings: ControlSettings;
  readonly auth: AuthSettings;
  /** Keys that live as long as the process. */
  readonly sessionKeys: AuthSettings["keys"];
  readonly dataDir: string;
  /** Null: the embedded database in `dataDir`. */
  readonly databaseUrl: Secret | null;
  /** What the chain of what operators did is signed with; null: a secret of the data folder. */
  readonly signingSecrets: readonly Secret[] | null;
  readonly clock: Clock;
  readonly log: Logger;
  readonly version: string;
  /** Where passes, placements, starts, restarts and refusals are traced; null: nowhere. */
  readonly otel: TraceSettings | null;
  /** Whether `/metrics` needs no key. Absent: only on loopback. */
  readonly metricsPublic?: boolean | undefined;
  /** What is shown of the cluster, and what operators do to it; absent: as it is. */
  readonly makeView?: (live: ClusterView) => ClusterView;
}

/** Whoever asks is told within a second, whatever the store does. */
const ANSWER_MS_MAX = 900;
/** How often another control plane's catalog is looked for. */
const CATALOG_LOOK_MS = 1_000;
/** How soon renewed certificates are noticed by themselves. */
const CERTIFICATES_MS = 60_000;
const CLOSE_GRACE_MS = 2_000;

type OwnHandler = Exclude<Handler, RelayHandler | BoardHandler | "auditChain">;
type Bounded = CatalogPorts["bounded"];

interface Parts {
  readonly opened: OpenedStore;
  readonly reader: CatalogReader;
  readonly keeper: CatalogKeeper;
  readonly bounded: Bounded;
  readonly tls: ServerTls | null;
  readonly tracer: Tracer | null;
}

const NODE_STATES = { cordon: "cordoned", uncordon: "open", drain: "draining" } as const;

/** One control plane, from its store to its listener. */
export class ControlPlane {
  readonly #options: ControlPlaneOptions;
  readonly #opened: OpenedStore;
  readonly #reader: CatalogReader;
  readonly #keeper: CatalogKeeper;
  readonly #spool: EventSpool;
  readonly #leadership: Leadership;
  readonly #source: CatalogSource | null;
  readonly #live: LiveCluster;
  readonly #keys: KeyRing;
  readonly #api: ApiServer;
  readonly #cluster: ClusterAnswers;
  readonly #restarts: RestartAnswers;
  readonly #weights: WeightsAnswers;
  readonly #catalog: CatalogAnswers;
  readonly #gateways: GatewayAnswers;
  readonly #tracer: Tracer | null;
  readonly #audit: ActAudit;
  readonly #relay: RelayAnswers;
  readonly #board: Board;
  readonly #boardAnswers: BoardAnswers;
  readonly #end = new AbortController();
  #auth: AuthSettings;
  #look: Timer | undefined;
  #certificatesLook: Timer | undefined;
  #address = "";

  /** Throws STORE_REFUSED or STORE_UNAVAILABLE when there is no store to work on, CONFIG_INVALID for a certificate of no use. */
  static async start(options: ControlPlaneOptions): Promise<ControlPlane> {
    const { dataDir, databaseUrl, clock, log } = options;
    const opened = await openStore({ dataDir, databaseUrl, clock, log });
    const reader = new CatalogReader(clock);
    let plane: ControlPlane | null = null;
    try {
      const { store } = opened;
      const running = async () => countRunning((await store.load()).replicas);
      const bounded = boundedBy(clock);
      const keeper = await CatalogKeeper.open({ store, reader, log, running, bounded });
      const { tls: files } = options.settings;
      const tls = files === null ? null : await readServerTls(files);
      const { otel, version } = options;
      const tracer = otel === null ? null : await openTracer(otel, version, { clock, log }, "internal");
      plane = new ControlPlane(options, { opened, reader, keeper, bounded, tls, tracer });
      const { port } = await plane.#api.listen(options.settings.listen);
      plane.#address = formatListen({ host: options.settings.listen.host, port });
      return plane;
    } catch (error) {
      // One that can't listen may have the lead already, and hands it over.
      await plane?.stop();
      if (plane === null) await Promise.all([reader.close(), opened.close()]);
      throw error;
    }
  }

  private constructor(options: ControlPlaneOptions, { opened, reader, keeper, bounded, tls, tracer }: Parts) {
    const { settings, clock, log, version, dataDir } = options;
    const { store } = opened;
    this.#options = options;
    this.#opened = opened;
    this.#reader = reader;
    this.#keeper = keeper;
    this.#auth = options.auth;
    this.#keys = new KeyRing(clock, { config: options.auth.keys, session: options.sessionKeys });
    this.#spool = new EventSpool({ store, path: join(dataDir, "control-events.spool"), clock, log });
    const self = `${formatListen(settings.listen)}#${randomBytes(6).toString("hex")}`;
    this.#audit = new ActAudit({ clock, log, dataDir, secrets: options.signingSecrets });
    this.#leadership = new Leadership({
      store,
      clock,
      log,
      settings,
      self,
      alone: opened.alone,
      onEvent: (event) => {
        this.#spool.tell(event);
        if (event.kind === "epochRaised") this.#audit.note(event);
      },
    });
    this.#source = settings.catalogFile === null ? null : this.#watchFile(settings.catalogFile);
    this.#leadership.onChange(() => this.#source?.look());
    this.#live = new LiveCluster({
      clock,
      log,
      settings,
      store,
      keeper,
      leadership: this.#leadership,
      keys: this.#keys,
      auth: () => this.#auth,
      controlId: self,
      onEvent: (event) => this.#spool.tell(event),
      tracer,
    });
    this.#tracer = tracer;
    const view = options.makeView?.(this.#live.view) ?? this.#live.view;
    const shared = { clock, keeper, source: this.#source };
    this.#cluster = new ClusterAnswers({
      ...shared,
      bounded,
      version,
      store,
      leadership: this.#leadership,
      view,
      isConnected: (node) => [...this.#live.links.nodes.values()].includes(node),
    });
    this.#restarts = new RestartAnswers({ clock, leadership: this.#leadership, view, bounded });
    this.#weights = new WeightsAnswers({ clock, view, bounded });
    this.#catalog = new CatalogAnswers(shared);
    this.#gateways = new GatewayAnswers({
      clock,
      store,
      view,
      bounded,
      disconnect: (name) => this.#live.feed.disconnect(name),
    });
    this.#relay = new RelayAnswers({ clock, desk: this.#live.desk });
    this.#board = this.#makeBoard(view, bounded);
    this.#boardAnswers = this.#makeBoardAnswers(tls !== null);
    this.#api = this.#makeApi(tls);
    serveUpgrades(this.#api.server, this.#live.upgrades, tls?.ca !== undefined);
    this.#lookForCatalogs();
    this.#lookForCertificates();
  }

  #makeBoard(view: ClusterView, bounded: Bounded): Board {
    const { clock, log, version } = this.#options;
    const { store } = this.#opened;
    const { desk, metrics } = this.#live;
    const board = new Board({
      clock,
      log,
      keys: this.#keys,
      view,
      desk,
      events: (query) => store.events(query),
      bounded,
      version,
      clusterId: store.clusterId,
      store: store.dialect,
      leader: () => this.#cluster.leader(),
      catalog: () => ({ held: this.#source?.held ?? null, refused: this.#source?.refused ?? null }),
      onLook: (seconds) => metrics.boardLooked(seconds),
      onBytes: (bytes) => metrics.boardSent(bytes),
    });
    metrics.useBoard(board);
    return board;
  }

  #makeApi(tls: ServerTls | null): ApiServer {
    const { clock, log, settings, metricsPublic } = this.#options;
    return new ApiServer({
      clock,
      log,
      keys: this.#keys,
      auth: () => this.#auth,
      metricsPublic: metricsPublic ?? isLoopback(settings.listen.host),
      tls,
      session: (req) => this.#boardAnswers.caller(req),
      hosts: new Set([settings.listen.host, ...settings.boardHosts].map((name) => name.toLowerCase())),
      answer: (request) => this.#answer(request),
    });
  }

  #makeBoardAnswers(isTls: boolean): BoardAnswers {
    const { clock, log, version } = this.#options;
    const { sessions, assets, hub } = this.#board;
    const { clusterId } = this.#opened.store;
    const shared = { clock, log, version, clusterId, isTls, keys: this.#keys, auth: () => this.#auth };
    return new BoardAnswers({ ...shared, sessions, assets, hub, desk: this.#live.desk });
  }

  /** HOST:PORT as bound. */
  get address(): string {
    return this.#address;
  }

  /** Gateways that follow this one, and what they can be asked. */
  get gateways(): { readonly desk: GatewayDesk } {
    return this.#live;
  }

  get leading(): boolean {
    return this.#leadership.mayAct();
  }

  /** Writes under the running term, in line with its passes. */
  commit(writes: readonly DocWrite[], events: readonly NewEvent[]): Promise<ActionOutcome> {
    return this.#live.loop.act(() => ({ writes, events }));
  }

  /** Path of a link that signs one browser in as the key, once. Undefined: the key is not let in here. */
  boardLink(keyId: string): string | undefined {
    const key = this.#keys.byId(keyId);
    return key === undefined ? undefined : onceLink(this.#board.sessions.makeOnce(key));
  }

  /** A one-time token for a node of this name, for an agent in the same process. */
  async enrolmentToken(node: string): Promise<Secret | undefined> {
    return (await this.#opened.store.issueToken(node, "this process"))?.token;
  }

  get clusterId(): string {
    return this.#opened.store.clusterId;
  }

  get store(): ControlStore["dialect"] {
    return this.#opened.store.dialect;
  }

  /** Keys of a changed configuration, in force for the next request. */
  applyAuth(auth: AuthSettings): void {
    this.#auth = auth;
    this.#keys.replace("config", auth.keys);
  }

  /** Keys made while running by the gateway of the same process, in force for the next request. */
  applyStoredKeys(keys: AuthSettings["keys"]): void {
    this.#keys.replace("stored", keys);
  }

  /** Reads the catalog's file again. */
  reload(): void {
    this.#source?.reload();
    void this.#renewCertificates();
  }

  #lookForCertificates(): void {
    if (this.#options.settings.tls === null || this.#end.signal.aborted) return;
    this.#certificatesLook = this.#options.clock.after(CERTIFICATES_MS, () => {
      void this.#renewCertificates().finally(() => this.#lookForCertificates());
    });
  }

  /** What can't be used leaves those in place that are. Never rejects. */
  async #renewCertificates(): Promise<void> {
    const { log, settings } = this.#options;
    if (settings.tls === null || this.#end.signal.aborted) return;
    try {
      if (this.#api.renewTls(await readServerTls(settings.tls))) log.info("control.certificatesRenewed");
    } catch (error) {
      log.error("control.certificatesRefused", { message: messageOf(error) });
    }
  }

  /** Hands the lead over, then ends. */
  async stop(): Promise<void> {
    this.#end.abort(new Error("the control plane stops"));
    this.#look?.cancel();
    this.#certificatesLook?.cancel();
    await this.#leadership.stop();
    this.#board.close();
    await this.#live.close();
    await this.#api.close(CLOSE_GRACE_MS);
    await Promise.all([this.#spool.close(), this.#audit.close(), this.#tracer?.close()]);
    await this.#reader.close();
    await this.#opened.close();
    this.#options.log.info("control.stopped");
  }

  #watchFile(path: string): CatalogSource {
    const { clock, log } = this.#options;
    return new CatalogSource({
      path,
      clock,
      log,
      keeper: this.#keeper,
      store: this.#opened.store,
      leading: () => this.#leadership.mayAct(),
      onEvent: (event) => this.#spool.tell(event),
      audited: (save) => this.#audit.file(save),
      signal: this.#end.signal,
    });
  }

  /** A store that is away is told of by the lease; here it only means that nothing new is known. */
  #lookForCatalogs(): void {
    const { clock } = this.#options;
    this.#look = clock.after(CATALOG_LOOK_MS, () => {
      void this.#keeper
        .refresh()
        .catch(() => {})
        .then(() => {
          if (!this.#end.signal.aborted) this.#lookForCatalogs();
        });
    });
  }

  #answer(request: ApiRequest): Promise<Answer> {
    const { handler } = request.route;
    if (isRelayHandler(handler)) return relay(this.#relay, request, handler);
    if (isBoardHandler(handler)) return this.#boardAnswers.answer(request, handler);
    if (handler === "auditChain") return this.#audit.page(request.query);
    return this.#audit.act(request, (act) => this.#answerOwn(act, handler));
  }

  #answerOwn(request: ActRequest, handler: OwnHandler): Promise<Answer> {
    const { rest, query } = request;
    switch (handler) {
      case "healthz":
        return Promise.resolve({ kind: "text", status: 200, text: "ok\n" });
      case "readyz":
        return this.#ready();
      case "metrics":
        return this.#metrics(request);
      case "status":
        return this.#cluster.status();
      case "leader":
        return Promise.resolve({ kind: "json", status: 200, body: this.#cluster.leader() });
      case "nodes":
      case "gpus":
      case "models":
      case "replicas":
        return this.#cluster.list(handler);
      case "cordon":
      case "uncordon":
      case "drain":
        return this.#cluster.setNode(request, NODE_STATES[handler]);
      case "restart":
      case "rollout":
      case "scale":
        return this.#restarts[handler](request);
      case "nodeRemove":
        return this.#cluster.removeNode(request);
      case "placement":
        return this.#cluster.placement(rest);
      case "retry":
        return this.#cluster.retry(request);
      case "events":
        return this.#cluster.events(query);
      case "logs":
        return this.#cluster.logs(request);
      case "restoredConfirm":
        return this.#cluster.confirmRestored(request);
      case "weights":
      case "weightsCollect":
        return this.#weights.answer(request);
      case "gateways":
        return Promise.resolve(this.#gateways.list());
      case "gatewayCredentials":
        return this.#gateways.credentials();
      case "gatewayEnrol":
        return this.#gateways.enrol(request);
      case "gatewayRevoke":
        return this.#gateways.revoke(request);
      case "tokenNew":
        return this.#cluster.newToken(request);
      case "catalog":
        return this.#catalog.show();
      case "catalogApply":
        return this.#catalog.apply(request);
      case "catalogDiff":
        return this.#catalog.diff(request);
      case "catalogHistory":
        return this.#catalog.history(query);
      case "catalogRevision":
        return this.#catalog.revision(rest);
      case "catalogRollback":
        return this.#catalog.rollback(request);
      case "catalogConfirm":
        return this.#catalog.confirm(request);
      default:
        return assertNever(handler, "handler");
    }
  }

  #metrics({ req }: ApiRequest): Promise<Answer> {
    return Promise.resolve({ kind: "text", status: 200, ...this.#live.metrics.page(req.headers.accept) });
  }

  /** Leading or not, with or without its store: it answers and shows what it knows. */
  #ready(): Promise<Answer> {
    const { role, storeSilentMs } = this.#leadership.view();
    const store =
      storeSilentMs === null ? "" : `; the store has not answered for ${Math.round(storeSilentMs / 1000)} s`;
    return Promise.resolve({ kind: "text", status: 200, text: `ready: ${role}${store}\n` });
  }
}

const LATE = "the store did not answer in time; a change may have been made all the same";

const boundedBy =
  (clock: Clock): Bounded =>
  (work, words = LATE) =>
    new Promise((resolve, reject) => {
      const timer = clock.after(ANSWER_MS_MAX, () => reject(new YardmasterError("STORE_UNAVAILABLE", words)));
      work.then(resolve, reject).finally(() => timer.cancel());
    });
