import type { EpochMs } from "../kernel/clock.ts";
import type { Secret } from "../kernel/secret.ts";
import type { OverflowPolicy } from "./overflow-settings.ts";
import type { RequestClass } from "./request-class.ts";
import type { Role } from "./roles.ts";

/**
 * The configuration in the gateway's own words: nothing optional, times in milliseconds, sizes in bytes. A snapshot: a
 * reload makes a new one, and whoever started under the old one ends under it.
 */

export interface ListenAddress {
  /** Without brackets for IPv6. */
  readonly host: string;
  /** 0 asks the system for a free port. */
  readonly port: number;
}

/** Null: no limit. Money is whole millionths of the currency that prices are in. */
export interface KeyLimits {
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  readonly tokensPerDay: number | null;
  readonly inFlightMax: number | null;
  readonly dayMicrosMax: number | null;
  readonly monthMicrosMax: number | null;
}

export const NO_LIMITS: KeyLimits = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  tokensPerDay: null,
  inFlightMax: null,
  dayMicrosMax: null,
  monthMicrosMax: null,
};

export interface ApiKey {
  readonly id: string;
  /** SHA-256 of the key, 64 lower-case hex digits. */
  readonly hash: string;
  readonly role: Role;
  /** The first is the default. */
  readonly classes: readonly [RequestClass, ...RequestClass[]];
  /** Globs over served names; null allows all. */
  readonly models: readonly string[] | null;
  /** Share inside a class. */
  readonly weight: number;
  readonly limits: KeyLimits;
  readonly allowExternal: boolean;
  readonly expiresAt: EpochMs | null;
}

export interface AuthSettings {
  readonly mode: "keys" | "none";
  readonly allowInsecure: boolean;
  readonly keys: readonly ApiKey[];
}

export interface AdmissionLimits {
  readonly slots: number;
  readonly batchMax: number;
  /** Part of the slots' time for each waiting lower class under endless higher load, 0 to 1; 0 turns it off. */
  readonly batchMinShare: number;
  readonly queueMax: number;
  readonly queueBytesMax: number;
  readonly queueTimeoutMs: Readonly<Record<RequestClass, number>>;
}

export interface UpstreamTimeouts {
  readonly connectMs: number;
  readonly firstByteMs: number;
  readonly idleMs: number;
  readonly totalMs: number;
  readonly writeStallMs: number;
  readonly lingerMs: number;
  readonly stallMs: number;
}

export interface RetrySettings {
  /** Further tries after the first. */
  readonly retriesMax: number;
  /** Retries as a part of recent requests, 0 to 1. */
  readonly budgetRatio: number;
}

export interface RoutingSettings {
  readonly policy: "least_loaded" | "round_robin" | "random_two";
  readonly prefixAffinity: boolean;
  /** Lower-case. */
  readonly sessionHeader: string | null;
  /** How far above the mean an endpoint's load may be for its warmth: 1.25 is a quarter. */
  readonly loadBound: number;
}

export interface EndpointSettings {
  /** host:port, with the path (and a number if need be) behind it where host:port alone is not unique in the upstream. */
  readonly id: string;
  /** As in the file, without a trailing slash. */
  readonly url: string;
  /** scheme://host:port, the port always written out: names the pool of connections. */
  readonly origin: string;
  readonly protocol: "http:" | "https:";
  /** Without brackets for IPv6. */
  readonly hostname: string;
  readonly port: number;
  /** Put before the path of each request: "" or "/prefix", never with a trailing slash. */
  readonly basePath: string;
  readonly slots: number;
  readonly gpus: readonly string[];
  /** Null: as the upstream says. */
  readonly engine: EngineName | null;
  /** Null: the upstream's. */
  readonly engineKey: Secret | null;
  /** The replica that runs there; null where the file names the endpoint. Another replica at one address is another endpoint. */
  readonly replica: { readonly id: string; readonly generation: number; readonly node: string } | null;
  /** On its way out: what runs there ends there, and nothing new goes there. */
  readonly draining: boolean;
}

/** What the control plane says of a model. */
export interface CatalogStanding {
  readonly settled: "ready" | "starting" | "stopped" | "unplaced" | "parked";
  readonly startable: boolean;
  /** Why nothing of it is ready, in words. */
  readonly why: string | null;
  readonly failedStarts: number;
}

/** An upstream whose endpoints are the replicas of a catalog's model. */
export interface CatalogSettings {
  readonly model: string;
  /** As in the file; null: what the endpoints have together. */
  readonly slots: number | null;
  /** As in the file; null: the usual part of the slots. */
  readonly batchMax: number | null;
  /** How long a request waits for a start. */
  readonly coldStartMs: number;
  /** Null until a control plane has told of it. */
  readonly standing: CatalogStanding | null;
}

/** Whom a gateway follows. */
export interface FeedSettings {
  /** Null: the host's. */
  readonly name: string | null;
  /** Without a path. */
  readonly controls: readonly string[];
  /** Null: the environment names none. */
  readonly token: Secret | null;
  readonly tls: LinkTlsFiles;
}

/** Paths of PEM files that a `wss://` link to a control plane is made with. */
export interface LinkTlsFiles {
  /** Null: the system's authorities. */
  readonly ca: string | null;
  /** What this side shows; null: nothing. */
  readonly cert: string | null;
  readonly key: string | null;
}

/** For a token, in millionths of the currency: what the file gives for a million tokens. */
export interface PriceSettings {
  readonly input: number;
  readonly output: number;
  readonly cached: number;
  readonly currency: string;
}

export interface CacheSettings {
  readonly ttlMs: number;
  /** Of all kept answers of the upstream. */
  readonly bytesMax: number;
  /** Whether keys are given each other's answers. */
  readonly shared: boolean;
}

/** A refusal of an engine that the same content will meet again. */
export interface RefusalRule {
  readonly status: number;
  /** Null: whatever the refusal says. */
  readonly code: string | null;
}

export interface IdempotencySettings {
  readonly ttlMs: number;
  readonly waitMs: number;
  /** Of one answer. */
  readonly bytesMax: number;
  /** Of all kept answers together. */
  readonly totalBytesMax: number;
}

export type UpstreamKind = "openai" | "http" | "job" | "azure-di" | "comfyui";
export type EngineName =
  | "vllm"
  | "sglang"
  | "llama.cpp"
  | "tei"
  | "ollama"
  | "document-intelligence"
  | "ocr"
  | "comfyui"
  | "generic";

export interface UpstreamSettings {
  readonly id: string;
  /** Served names and aliases, without duplicates; a catalog model's name is one of them. */
  readonly models: readonly string[];
  /** Null: its endpoints are those of the file. */
  readonly catalog: CatalogSettings | null;
  readonly kind: UpstreamKind;
  readonly engine: EngineName;
  readonly limits: AdmissionLimits;
  readonly timeouts: UpstreamTimeouts;
  readonly retry: RetrySettings;
  readonly routing: RoutingSettings;
  readonly health: "active" | "passive";
  readonly usage: "read" | "inject";
  readonly enginePriority: boolean;
  readonly external: boolean;
  /** Read from the environment when the file is loaded. */
  readonly engineKey: Secret | null;
  /** Lower-case names, without duplicates. */
  readonly forwardHeaders: readonly string[];
  readonly sseKeepaliveMs: number | null;
  /** What the engine calls the model, whatever the client said. Absent: as the client does. */
  readonly engineModel?: string;
  /** Where a plain OCR engine takes a document. */
  readonly ocrPath: string;
  /** Null: its tokens cost nothing. */
  readonly price: PriceSettings | null;
  /** Null: no answer is kept for others. */
  readonly cache: CacheSettings | null;
  readonly refusals: readonly RefusalRule[];
  readonly refusalTtlMs: number;
  /** Indices on the host of the only source of telemetry, for the endpoints that run there. */
  readonly gpuIds: readonly number[];
  readonly endpoints: readonly EndpointSettings[];
}

export interface GpuSourceSettings {
  /** The whole URL. */
  readonly name: string;
  /** Null: as its page says. */
  readonly host: string | null;
  /** scheme://host:port, the port always written out. */
  readonly origin: string;
  readonly protocol: "http:" | "https:";
  /** Without brackets for IPv6. */
  readonly hostname: string;
  readonly port: number;
  readonly path: string;
}

export interface GpuHealthSettings {
  /** Whether it is about endpoints that a control plane placed and no others: the file says nothing of cards. */
  readonly placedOnly: boolean;
  readonly sources: readonly GpuSourceSettings[];
  readonly pollMs: number;
  readonly stalenessMs: number;
  readonly faultTempC: number;
  readonly clearAfterMs: number;
  readonly coupleFaults: boolean;
  readonly coupleXid: boolean;
  /** Null: keep for heat, drop for other faults. */
  readonly lastEndpoint: "keep" | "drop" | null;
  readonly shedBatch: boolean;
  /** 0 to 100. */
  readonly shedUtilization: number;
  readonly sustainedSamples: number;
  readonly dryRun: boolean;
  readonly xidOverrides: ReadonlyMap<number, "ignore" | "drain" | "isolate">;
}

export interface JobSettings {
  readonly claimMs: number;
  readonly attemptsMax: number;
  readonly keepMs: number;
  readonly deadlineMs: number;
  readonly fanoutMax: number;
  /** Jobs that this gateway works on at once. */
  readonly heldMax: number;
  readonly jobsMax: number;
  readonly bytesMax: number;
  readonly bodyBytesMax: number;
  readonly resultBytesMax: number;
  readonly replicas: number;
  readonly callbackAllow: readonly string[];
  /** Null: the environment names none, so nothing can be signed. */
  readonly callbackSecret: Secret | null;
}

export interface BatchSettings {
  readonly fileBytesMax: number;
  readonly linesMax: number;
  readonly bytesMax: number;
  readonly keyBytesMax: number;
  readonly filesMax: number;
  /** Of one key. */
  readonly openMax: number;
  readonly windowMsMax: number;
  readonly keepMs: number;
}

export interface GatewayConfig {
  readonly listen: ListenAddress;
  readonly dataDir: string;
  readonly coordination: "local" | "redis";
  /** May hold a password. */
  readonly redisUrl: Secret | null;
  /** One deadline around a whole step of coordination. */
  readonly coordinationTimeoutMs: number;
  readonly leaseTtlMs: number;
  readonly keyPrefix: string;
  /** May hold a password. Null: SQLite in `dataDir`. */
  readonly databaseUrl: Secret | null;
  readonly auth: AuthSettings;
  readonly maxBodyBytes: number;
  readonly maxBufferedBytes: number;
  readonly maxConnections: number;
  readonly drainMs: number;
  /** Whether answers carry `x-yardmaster-endpoint`. */
  readonly endpointHeader: boolean;
  readonly clientServer: "net" | "http";
  readonly upstreamClient: "net" | "undici";
  readonly http: {
    readonly headersTimeoutMs: number;
    /** Without a byte of the body for this long the request is ended. */
    readonly bodyIdleMs: number;
    readonly keepAliveMs: number;
  };
  /** May hold a password. Null: the caches lie where the coordination does. */
  readonly cacheRedisUrl: Secret | null;
  readonly idempotency: IdempotencySettings;
  readonly jobs: JobSettings;
  readonly batches: BatchSettings;
  readonly auditEventsMax: number;
  /** Days of what keys have used that are kept. */
  readonly usageKeepDays: number;
  readonly otel: { readonly endpoint: string; readonly serviceName: string } | null;
  /** Whether `/metrics` needs no key: as the file says, else only on loopback. */
  readonly metricsPublic: boolean;
  /** Null: no control plane is followed. */
  readonly feed: FeedSettings | null;
  /** Null: no card is looked at. */
  readonly gpuHealth: GpuHealthSettings | null;
  /** Empty: all work stays here. */
  readonly overflow: readonly OverflowPolicy[];
  /** The first signs, all of them verify. Null: the data folder has one; empty: none of those that were named is there. */
  readonly signingSecrets: readonly Secret[] | null;
  readonly upstreams: readonly UpstreamSettings[];
}
