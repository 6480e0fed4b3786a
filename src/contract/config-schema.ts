import { z } from "zod";
import { agentSection } from "./agent-schema.ts";
import { batchesSection } from "./batch-schema.ts";
import { configId as id, httpUrl, seconds } from "./config-fields.ts";
import { controlSection } from "./control-schema.ts";
import { gatewaySection } from "./gateway-schema.ts";
import { gpuHealthSection } from "./gpu-schema.ts";
import { overflowSection } from "./overflow-schema.ts";
import { keyConfig } from "./key-schema.ts";
import { parseListen } from "./listen-address.ts";
import { priceSection } from "./price-schema.ts";

/**
 * The one YAML file, as its author writes it: snake_case, units in the names. Descriptions become docs/reference/config.md
 * and the JSON Schema. `resolve-config.ts` turns it into the gateway's own words.
 */

/** Refusals that say something of the moment or of the asker, not of the content. */
const PASSING_REFUSALS: ReadonlySet<number> = new Set([401, 407, 408, 409, 425, 429, 499]);

const endpointConfig = z.strictObject({
  url: httpUrl.describe("Base URL of one running engine, without the `/v1`."),
  slots: z
    .int()
    .positive()
    .max(100_000)
    .optional()
    .describe("Requests in flight on this endpoint at most. Absent: the upstream's `slots`."),
  gpus: z
    .array(z.string().min(1).max(320))
    .max(4_096)
    .optional()
    .describe("The GPUs under the endpoint, by UUID or `host/index`; a MIG instance as `…/giN`."),
});

export const upstreamConfig = z.strictObject({
  id: id.describe("Name of the upstream in headers, metrics and `/upstreams/{id}/`."),
  models: z
    .array(z.string().min(1).max(256))
    .default([])
    .describe("Served names and aliases. The engine sees the name the client sent."),
  model: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe(
      "A catalog model whose ready replicas become endpoints, beside those named here (needs `gateway.control`).",
    ),
  cold_start_s: seconds
    .default(300)
    .describe(
      "With `model`: how long a request waits for the start of a model of which nothing runs, in the place of `queue.timeout_s`.",
    ),
  kind: z
    .enum(["openai", "http", "job", "azure-di", "comfyui"])
    .default("openai")
    .describe(
      "What the upstream speaks. `azure-di`: analyses documents, for clients of Azure's Document Intelligence. `comfyui`: makes images and videos by ComfyUI's workflows, which come as jobs. `job` is refused in this version.",
    ),
  engine: z
    .enum(["vllm", "sglang", "llama.cpp", "tei", "ollama", "document-intelligence", "ocr", "comfyui", "generic"])
    .default("generic")
    .describe(
      "Which engine runs there: picks health check, metric names and error shapes. With `kind: azure-di`: `document-intelligence` (the default: a container or service with that API) or `ocr` (any OCR engine that takes a document by POST). With `kind: comfyui` it is `comfyui`.",
    ),
  ocr_path: z
    .string()
    .regex(/^\/[\x21-\x7e]*$/, "use a path that begins with /")
    .default("/ocr")
    .describe("With `engine: ocr`: where the engine takes a document's bytes and answers with its text."),
  slots: z
    .int()
    .positive()
    .max(100_000)
    .optional()
    .describe(
      "Requests in flight at most, over all endpoints and gateways. Needed, but for an upstream with `model`, which has those of its endpoints without it.",
    ),
  batch_max: z
    .int()
    .positive()
    .optional()
    .describe("Slots that class `batch` may hold. Absent: three quarters of `slots`, at least 1."),
  batch_min_share: z
    .number()
    .min(0)
    .max(1)
    .default(0.05)
    .describe("Part of the slots' time that waiting lower classes get under endless interactive load; 0 turns it off."),
  queue: z
    .strictObject({
      max: z.int().min(0).max(1_000_000).default(2000).describe("Requests waiting at most."),
      max_bytes: z.int().positive().default(268_435_456).describe("Bytes of waiting bodies at most."),
      timeout_s: z
        .strictObject({
          interactive: seconds.default(30).describe("For class `interactive`."),
          system: seconds.default(30).describe("For class `system`."),
          batch: seconds.default(900).describe("For class `batch`."),
        })
        .prefault({})
        .describe("How long a request of each class waits for a slot."),
    })
    .prefault({}),
  timeouts: z
    .strictObject({
      connect_s: seconds.default(2).describe("Opening a connection, all addresses together."),
      first_byte_s: seconds.default(300).describe("From dispatch to the first event (streams) or byte of the answer."),
      idle_s: seconds.default(120).describe("Between two complete events of a stream, or two reads of another body."),
      total_s: seconds.default(3600).describe("From dispatch to the end."),
      write_stall_s: seconds.default(30).describe("How long a client may take nothing while bytes wait for it."),
      linger_s: seconds
        .default(60)
        .describe("How long a slot is held for an engine that works on after an abort (see the engines page)."),
      stall_s: seconds
        .default(60)
        .describe(
          "No byte and no moving engine counter for this long with requests in flight: the endpoint is stalled.",
        ),
    })
    .prefault({}),
  retry: z
    .strictObject({
      attempts: z
        .int()
        .min(0)
        .max(10)
        .default(2)
        .describe(
          "Further tries after the first, each on another endpoint. Endpoints that refuse the connection are passed over and not counted; 0 tries nothing else at all.",
        ),
      budget_percent: z.number().min(0).max(100).default(20).describe("Retries as a part of recent requests, plus 3."),
    })
    .prefault({}),
  routing: z
    .strictObject({
      policy: z
        .enum(["least_loaded", "round_robin", "random_two"])
        .default("least_loaded")
        .describe("How an endpoint is chosen among those that can take the request."),
      prefix_affinity: z
        .boolean()
        .default(false)
        .describe("Prompts that begin alike go where their beginning is warm, within `affinity_load_bound`."),
      session_header: z
        .string()
        .regex(/^[A-Za-z0-9-]{1,64}$/)
        .optional()
        .describe(
          "Requests of one key with the same value of this header go to one endpoint, within `affinity_load_bound`.",
        ),
      affinity_load_bound: z
        .number()
        .min(1.05)
        .max(4)
        .default(1.35)
        .describe("What an endpoint may have in flight for its warmth, as a multiple of its fair share by slots."),
    })
    .prefault({}),
  health: z
    .enum(["active", "passive"])
    .default("active")
    .describe("`passive`: no probes; only real requests tell. For clouds and engines without a health page."),
  usage: z
    .enum(["read", "inject"])
    .default("read")
    .describe("`inject`: ask the engine for usage in streams whose client did not, and remove the extra event."),
  engine_priority: z.boolean().default(false).describe("Send the class to the engine as its own priority."),
  external: z.boolean().default(false).describe("Outside the house: only keys with `allow_external` may use it."),
  key_env: z
    .string()
    .regex(/^[A-Za-z_][A-Za-z0-9_]*$/)
    .optional()
    .describe("Environment variable that holds the engine's API key."),
  forward_headers: z
    .array(z.string().regex(/^[A-Za-z0-9-]{1,64}$/))
    .default([])
    .describe("Further client headers that the engine gets. The usual ones always pass."),
  price: priceSection
    .optional()
    .describe(
      "What tokens cost here: for `GET /usage`, and for keys with a `cost_per_day` or `cost_per_month`. Absent: nothing.",
    ),
  sse_keepalive_s: seconds
    .optional()
    .describe(
      "Send an SSE comment to a waiting streaming client at this interval. Absent: the stream's bytes are the engine's.",
    ),
  cache: z
    .strictObject({
      ttl_s: z.number().positive().max(2_592_000).describe("How long an answer is given again."),
      max_bytes: z
        .int()
        .positive()
        .default(67_108_864)
        .describe("Kept answers of this upstream together; the least recently used leave first."),
      shared: z
        .boolean()
        .default(false)
        .describe("Keys are given each other's answers. Otherwise each key is given only its own."),
    })
    .optional()
    .describe("Give the answer again to equal requests that ask for the same answer each time. Absent: never."),
  refusals: z
    .array(
      z.strictObject({
        status: z
          .int()
          .min(400)
          .max(499)
          .refine(
            (status) => !PASSING_REFUSALS.has(status),
            "use a status that the same content will meet again; 401, 407, 408, 409, 425, 429 and 499 pass",
          )
          .describe("Status of the engine's refusal."),
        code: z
          .string()
          .min(1)
          .max(128)
          .optional()
          .describe("`code` or `type` in the refusal's JSON. Absent: any refusal of this status."),
      }),
    )
    .max(32)
    .default([])
    .describe("Refusals of the engine that will not change: the same content is refused again without asking it."),
  negative_ttl_s: z
    .number()
    .positive()
    .max(86_400)
    .default(5)
    .describe("How long a refusal named in `refusals` is remembered."),
  gpu_ids: z
    .array(z.int().min(0).max(9_999))
    .max(64)
    .default([])
    .describe(
      "Older form of the endpoints' `gpus`: indices on the host of the one source, for the endpoints that run there.",
    ),
  endpoints: z.array(endpointConfig).max(4096).default([]).describe("The running engines behind the upstream."),
});

export const configFile = z.strictObject({
  listen: z
    .string()
    .refine(
      (text) => parseListen(text) !== undefined,
      "use HOST:PORT with the host named, such as 127.0.0.1:8200 or [::1]:8200",
    )
    .default("127.0.0.1:8200")
    .describe("HOST:PORT. Loopback unless told otherwise; another address needs `auth.mode: keys`."),
  data_dir: z
    .string()
    .min(1)
    .default("data")
    .describe(
      "Folder for the embedded databases and local state, relative to the working directory. One gateway at a time: a second one does not start.",
    ),
  coordination: z
    .enum(["local", "redis"])
    .default("local")
    .describe(
      "`local`: one gateway, everything in its process. `redis`: any number of gateways share slots through one Redis or Valkey.",
    ),
  redis_url: z
    .string()
    .regex(/^rediss?:\/\/./, "use a redis:// or rediss:// URL")
    .optional()
    .describe("The Redis or Valkey (from version 7) of `coordination: redis`."),
  coordination_timeout_ms: z
    .int()
    .min(5)
    .max(10_000)
    .default(100)
    .describe("One deadline around a whole step of coordination; a slower Redis counts as one that is away."),
  lease_ttl_s: z
    .number()
    .min(1)
    .max(3600)
    .default(15)
    .describe("How long a slot stays taken when the gateway that holds it has died. Renewed at a third of it."),
  key_prefix: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$/, "use 1 to 64 letters, digits, '.', '_', ':' or '-'")
    .default("yardmaster")
    .describe("Every key and channel in Redis begins with it. Gateways that share have the same."),
  database_url: z
    .string()
    .regex(/^(?:sqlite:|postgres(?:ql)?:\/\/)./, "use sqlite:PATH or postgres://…")
    .optional()
    .describe(
      "Database of the control plane, `postgres://…` or `sqlite:PATH`. Absent: `control.db` in `data_dir`. Control planes that take over from each other share a PostgreSQL.",
    ),
  auth: z
    .strictObject({
      mode: z.enum(["keys", "none"]).default("keys").describe("`none` is allowed on loopback only."),
      allow_insecure: z
        .boolean()
        .default(false)
        .describe("Allows `mode: none` on other addresses. Anyone who reaches the port can use the GPUs."),
      keys: z
        .array(keyConfig)
        .default([])
        .describe("The keys that are let in, besides those made with `yardmaster ctl key new`."),
    })
    .prefault({}),
  max_body_bytes: z
    .int()
    .positive()
    .max(4_294_967_296)
    .default(67_108_864)
    .describe("A larger request body is answered 413."),
  max_buffered_bytes: z
    .int()
    .positive()
    .default(402_653_184)
    .describe("Request bodies held in memory at once, over all requests."),
  max_connections: z
    .int()
    .positive()
    .default(16_000)
    .describe(
      "Client connections at once; fewer where the process may open too few files (`ulimit -n`), which the log tells.",
    ),
  drain_s: z.number().min(0).max(86_400).default(300).describe("How long running answers may go on after SIGTERM."),
  endpoint_header: z.boolean().default(true).describe("Whether answers carry `x-yardmaster-endpoint`."),
  client_server: z
    .enum(["net", "http"])
    .default("net")
    .describe("HTTP server towards the clients: our own, or Node's `http`."),
  upstream_client: z
    .enum(["net", "undici"])
    .default("net")
    .describe("HTTP client towards the engines: our own, or undici's dispatcher."),
  http: z
    .strictObject({
      headers_timeout_s: seconds.default(10).describe("How long a client may take to send a request's head."),
      request_timeout_s: seconds
        .default(60)
        .describe(
          "From then on a request's body that has come at less than 250 bytes a second is not waited for: 408.",
        ),
      keep_alive_s: seconds.default(75).describe("How long an idle client connection is kept."),
    })
    .prefault({}),
  cache_redis_url: z
    .string()
    .regex(/^rediss?:\/\/./, "use a redis:// or rediss:// URL")
    .optional()
    .describe("A Redis or database of its own for the upstreams' caches. Absent: that of `coordination`, or memory."),
  idempotency: z
    .strictObject({
      ttl_h: z.number().positive().max(8_760).default(24).describe("How long the answer to a key is given again."),
      wait_s: z
        .number()
        .min(0)
        .max(3_600)
        .default(30)
        .describe("How long a request waits for another one with its key before it is told 409."),
      max_bytes: z
        .int()
        .positive()
        .max(536_870_912)
        .default(8_388_608)
        .describe("A larger answer is not kept: its key does not protect it."),
      total_max_bytes: z
        .int()
        .positive()
        .default(1_073_741_824)
        .describe("Kept answers together, in the database or in Redis; the oldest leave first."),
    })
    .prefault({})
    .describe("Requests with an `Idempotency-Key`."),
  batches: batchesSection,
  jobs: z
    .strictObject({
      claim_ttl_s: seconds
        .default(30)
        .describe("How long a gateway's claim on a job lasts without being renewed; it is renewed at a third of it."),
      max_attempts: z.int().min(1).max(100).default(3).describe("Attempts of a job, and of each part in an attempt."),
      ttl_h: z.number().positive().max(720).default(24).describe("How long a job is kept after its end."),
      deadline_s: z
        .number()
        .positive()
        .max(604_800)
        .default(86_400)
        .describe("A job that has not ended after this time fails; a submit may ask for less."),
      fanout_max: z.int().min(1).max(10_000).default(16).describe("Parts of one job that run at once."),
      max_held: z.int().min(1).max(100_000).default(1_000).describe("Jobs that one gateway works on at once."),
      max_jobs: z
        .int()
        .min(1)
        .max(10_000_000)
        .default(100_000)
        .describe("Jobs kept, ended ones included. Over it a submit is answered 429."),
      max_bytes: z
        .int()
        .positive()
        .default(4_294_967_296)
        .describe("Bytes of requests and results kept. Over it a submit is answered 429."),
      max_body_bytes: z
        .int()
        .positive()
        .max(268_435_456)
        .default(16_777_216)
        .describe("A larger submit is answered 413."),
      max_result_bytes: z
        .int()
        .positive()
        .max(268_435_456)
        .default(67_108_864)
        .describe("A job (or part) with a larger answer fails."),
      replicas: z
        .int()
        .min(0)
        .max(10)
        .default(0)
        .describe("Under `coordination: redis`: replicas that must have a job before its submit is answered 202."),
      callback_allow: z
        .array(z.string().min(1).max(300))
        .max(1_000)
        .default([])
        .describe(
          "Where callbacks may go: `host`, `host:port`, `*.host`, an address or a range; https unless `http://` stands in front. Addresses that are not public only where listed.",
        ),
      callback_secret_env: z
        .string()
        .regex(/^[A-Za-z_][A-Za-z0-9_]*$/)
        .default("YARDMASTER_CALLBACK_SECRET")
        .describe("Environment variable with the secret that callbacks are signed with."),
    })
    .prefault({}),
  audit: z.strictObject({ max: z.int().positive().default(100_000).describe("Events kept.") }).prefault({}),
  usage: z
    .strictObject({
      keep_days: z
        .int()
        .min(1)
        .max(3_660)
        .optional()
        .describe(
          "Days of what keys have used that are kept. Absent: 400, or 62 under `coordination: redis`, where they are memory of the server.",
        ),
    })
    .prefault({}),
  signing_key_envs: z
    .array(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "use the name of an environment variable"))
    .max(8)
    .default([])
    .describe(
      "Environment variables with the secrets (32 characters or more) that approvals and the chain of the audit are signed with: the first signs, all of them verify. Absent: a secret of its own in `data_dir`, which gateways that share approvals can't have.",
    ),
  otel: z
    .strictObject({
      endpoint: httpUrl.describe("Base URL of the collector."),
      service_name: z.string().min(1).default("yardmaster").describe("`service.name` of the spans."),
    })
    .optional()
    .describe("OTLP/HTTP traces, of a gateway's requests and of what a leading control plane does. Absent: none."),
  metrics: z
    .strictObject({
      public: z.boolean().optional().describe("Whether `/metrics` needs no key. Absent: only on loopback."),
    })
    .prefault({}),
  gpu_health: gpuHealthSection
    .optional()
    .describe(
      "Faulted and saturated GPUs. Absent: no exporter is asked; under `gateway.control` placed endpoints are guarded by what agents read, and else no card is looked at.",
    ),
  overflow: z
    .array(overflowSection)
    .max(1_000)
    .default([])
    .describe("Where the work of an upstream may go while its card is busy or away. Absent: nowhere."),
  control: controlSection.optional().describe("For `yardmaster control`. Absent: the defaults."),
  agent: agentSection.optional().describe("For `yardmaster agent`. Absent: the defaults."),
  gateway: gatewaySection.optional().describe("How a gateway follows the control plane. Absent: it does not."),
  upstreams: z.array(upstreamConfig).max(10_000).describe("What requests are sent to. `[]` if there is nothing yet."),
});

/** For a role that serves no upstreams, and does not ask for them. */
export const configFileWithoutGateway = configFile.extend({ upstreams: configFile.shape.upstreams.default([]) });

export type ConfigFile = z.output<typeof configFile>;
export type UpstreamFile = z.output<typeof upstreamConfig>;
export type KeyFile = z.output<typeof keyConfig>;
