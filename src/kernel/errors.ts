/**
 * Every code the product answers with. A code never changes its meaning. `retry` tells a caller whether the same
 * request may succeed later; `retryAfter` marks the answers that always carry `Retry-After`.
 * The source of docs/reference/errors.md.
 */
export const ERRORS = {
  BAD_JSON: {
    http: 400,
    retry: "never",
    meaning: "The body is not the JSON (or multipart form) that the route needs.",
  },
  BAD_REQUEST: {
    http: 400,
    retry: "never",
    meaning: "A header, path, parameter or the framing of the request can't be read.",
  },
  CLASS_UNKNOWN: {
    http: 400,
    retry: "never",
    meaning: "`x-yardmaster-class` names no class; use interactive, system or batch.",
  },
  UNAUTHORIZED: { http: 401, retry: "never", meaning: "No key was sent, or the key is wrong, expired or revoked." },
  FORBIDDEN: { http: 403, retry: "never", meaning: "The key is valid, but its role may not use this route." },
  HOST_REFUSED: {
    http: 403,
    retry: "never",
    meaning:
      "The board was asked for under a name that is not its own: a page elsewhere may have pointed that name here. `control.board.hosts` lists the names.",
  },
  ORIGIN_REFUSED: {
    http: 403,
    retry: "never",
    meaning: "A page of another origin asked a browser to change something here.",
  },
  CLASS_FORBIDDEN: { http: 403, retry: "never", meaning: "The key may not use this class." },
  MODEL_FORBIDDEN: { http: 403, retry: "never", meaning: "The key may not use this model." },
  EXTERNAL_UPSTREAM_FORBIDDEN: {
    http: 403,
    retry: "never",
    meaning: "The upstream is outside the house and the key does not allow that.",
  },
  MODEL_UNKNOWN: { http: 404, retry: "never", meaning: "No upstream serves, or no catalog has, a model of this name." },
  UPSTREAM_UNKNOWN: { http: 404, retry: "never", meaning: "There is no upstream with this id." },
  JOB_UNKNOWN: { http: 404, retry: "never", meaning: "There is no job with this id, or it has expired." },
  FILE_UNKNOWN: { http: 404, retry: "never", meaning: "There is no file with this id, or it has expired." },
  BATCH_UNKNOWN: { http: 404, retry: "never", meaning: "There is no batch with this id, or it has expired." },
  KEY_UNKNOWN: { http: 404, retry: "never", meaning: "No stored key has this id." },
  GPU_UNKNOWN: { http: 404, retry: "never", meaning: "No source has told of a GPU of this name." },
  NODE_UNKNOWN: { http: 404, retry: "never", meaning: "There is no node of this id or name." },
  REPLICA_UNKNOWN: { http: 404, retry: "never", meaning: "There is no replica of this id." },
  REVISION_UNKNOWN: { http: 404, retry: "never", meaning: "The catalog has no such revision, or keeps it no longer." },
  ROUTE_UNKNOWN: { http: 404, retry: "never", meaning: "There is no such route." },
  METHOD_NOT_ALLOWED: { http: 405, retry: "never", meaning: "The route exists, but not for this method; see `Allow`." },
  REQUEST_TIMEOUT: { http: 408, retry: "afterDelay", meaning: "The request's head or body did not arrive in time." },
  KEY_EXISTS: { http: 409, retry: "never", meaning: "A key with this id exists already." },
  KEY_IN_FILE: {
    http: 409,
    retry: "never",
    meaning: "The key stands in the configuration file, and is changed there.",
  },
  IDEMPOTENCY_IN_PROGRESS: {
    http: 409,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "A request with this idempotency key is still running.",
  },
  STALE_EPOCH: {
    http: 409,
    retry: "never",
    meaning: "A command of a leader that has been replaced; the agent has seen a higher epoch.",
  },
  EPOCH_CONFLICT: {
    http: 409,
    retry: "never",
    meaning: "Two control planes hold one epoch number; the agent obeys the first that it saw.",
  },
  CLUSTER_MISMATCH: { http: 409, retry: "never", meaning: "The node belongs to another cluster." },
  NOT_LEADING: {
    http: 409,
    retry: "never",
    meaning: "A command from a control plane that does not lead on this link.",
  },
  EXPIRED: {
    http: 409,
    retry: "never",
    meaning: "A command that came, or was to be carried out, after its time. The leader's next pass decides anew.",
  },
  REPLAYED: { http: 409, retry: "never", meaning: "A command whose number was used before under the same epoch." },
  STALE_GENERATION: {
    http: 409,
    retry: "never",
    meaning: "A command about an older generation of a replica, or about one that was stopped here.",
  },
  SHARD_BUSY: {
    http: 409,
    retry: "afterDelay",
    meaning: "An older generation of the replica still runs on the node, or has not ended yet.",
  },
  LAUNCH_REFUSED: {
    http: 422,
    retry: "never",
    meaning:
      "The node does not start this profile: a flag, variable or program that it does not allow, or cards that it lacks.",
  },
  SHARD_UNKNOWN: { http: 404, retry: "never", meaning: "The node has no such replica." },
  JOB_NOT_DONE: {
    http: 409,
    retry: "afterDelay",
    meaning: "The job has not ended yet, so it has no result.",
  },
  JOB_OVER: {
    http: 409,
    retry: "never",
    meaning: "The job has ended, so there is nothing to approve.",
  },
  JOB_CANCELLED: { http: 409, retry: "never", meaning: "The job was cancelled, so it has no result." },
  FILE_IN_USE: { http: 409, retry: "never", meaning: "A batch that has not ended reads the file; cancel it first." },
  BATCH_OVER: {
    http: 409,
    retry: "never",
    meaning: "The batch has ended, or all its lines have, so it can't be cancelled.",
  },
  JOB_IN_OTHER_STORE: {
    http: 409,
    retry: "never",
    meaning:
      "The job was accepted while `coordination` was set to its other value, and is kept there until it expires.",
  },
  STORE_LOST: {
    http: 410,
    retry: "never",
    meaning: "The job was accepted, and the store that held it was emptied since.",
  },
  WEIGHTS_HELD: {
    http: 409,
    retry: "never",
    meaning:
      "No weights are removed now, since the control plane may not know all that is wanted: the store is an old copy, most of the fleet is silent, or the leader is new. The message says which.",
  },
  CONFIRMATION_NEEDED: {
    http: 409,
    retry: "never",
    meaning:
      "The change of the catalog takes away more than 30 % of the replicas, or the last one of a model; the answer has the token that confirms it.",
  },
  ACTION_REFUSED: {
    http: 409,
    retry: "never",
    meaning: "What was asked for is not allowed by the state of what it is about; the message says why.",
  },
  CATALOG_CHANGED: {
    http: 412,
    retry: "never",
    meaning: "The catalog is no longer the revision that the change was made for: read it again.",
  },
  BODY_TOO_LARGE: { http: 413, retry: "never", meaning: "The body is larger than `max_body_bytes`." },
  AUDIT_UNAVAILABLE: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning:
      "The audit can't take a record now, and what an administrator changes is not done without one. Inference is not concerned.",
  },
  AGENT_BUSY: {
    http: 503,
    retry: "afterDelay",
    meaning: "The agent has more commands waiting, or more engines, than it takes.",
  },
  AGENT_STATE: {
    http: 503,
    retry: "afterDelay",
    meaning: "The agent can't write its own files, so it carries out nothing: its disk is full, or can't be written.",
  },
  AGENT_LINK_BUSY: {
    http: 503,
    retry: "afterDelay",
    meaning: "More agents or gateways wait to connect to the control plane than it lets wait.",
  },
  NODE_CONNECTED: {
    http: 409,
    retry: "never",
    meaning: "An agent of this name is connected, and a new token would shut it out. Say `replace` if that is meant.",
  },
  GATEWAY_SILENT: {
    http: 503,
    retry: "afterDelay",
    meaning: "No gateway is connected that could be asked, or the one that was asked did not answer in time.",
  },
  BOARDS_FULL: {
    http: 503,
    retry: "afterDelay",
    meaning: "As many boards are open as the control plane serves.",
  },
  NODE_SILENT: {
    http: 503,
    retry: "afterDelay",
    meaning: "The node is not connected to this control plane, or did not answer in time.",
  },
  URI_TOO_LONG: { http: 414, retry: "never", meaning: "The request target is longer than 8 KiB." },
  MEDIA_TYPE_UNSUPPORTED: { http: 415, retry: "never", meaning: "The content type is none that the route takes." },
  EXPECTATION_FAILED: { http: 417, retry: "never", meaning: "`Expect` asks for something other than 100-continue." },
  IDEMPOTENCY_MISMATCH: {
    http: 422,
    retry: "never",
    meaning: "The idempotency key was used before with another request.",
  },
  CALLBACK_FORBIDDEN: {
    http: 422,
    retry: "never",
    meaning: "`callback_url` names no place that `jobs.callback_allow` lists, or callbacks are not set up.",
  },
  CATALOG_INVALID: {
    http: 422,
    retry: "never",
    meaning: "The catalog has mistakes; the answer lists each with its place. The last good one stays in force.",
  },
  HEADERS_TOO_LARGE: { http: 431, retry: "never", meaning: "More than 100 headers, or more than 16 KiB of them." },
  QUEUE_FULL: {
    http: 429,
    retry: "afterDelay",
    retryAfter: true,
    meaning:
      "The upstream's queue or the memory for waiting bodies is full, the gateway is behind with its work, or as many jobs, or bytes of them, are kept as may be (`jobs`).",
  },
  FILES_FULL: {
    http: 429,
    retry: "afterDelay",
    retryAfter: true,
    meaning:
      "As many files, bytes of files or open batches are kept as may be (`batches` in the configuration). Delete what is not needed, or wait.",
  },
  GPU_SATURATED: {
    http: 429,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "Batch work is refused while the GPUs are saturated.",
  },
  RATE_LIMITED: {
    http: 429,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "A limit of the key, or of wrong keys from one address, is reached.",
  },
  KEY_QUOTA_SPENT: {
    http: 429,
    retry: "afterDelay",
    retryAfter: true,
    meaning:
      "What the key may use in a day or month, tokens or money, is used up; the message says which, and until when.",
  },
  REQUEST_OVER_LIMIT: {
    http: 400,
    retry: "never",
    meaning: "The request alone asks for more tokens or money than a limit of its key: it fits at no time.",
  },
  KEY_STORE_UNAVAILABLE: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning:
      "The keys that were made while running can't be read or changed now. A key that is none of the configuration file's may be one of them.",
  },
  KEY_COUNTS_UNAVAILABLE: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "The key has a limit of money, and what it has spent can't be counted now.",
  },
  USAGE_UNAVAILABLE: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "The store of what keys have used can't be read now. It is counted on meanwhile.",
  },
  CLIENT_CLOSED: {
    http: 499,
    retry: "never",
    meaning: "The client went away; seen in the audit and metrics only, never sent.",
  },
  OVERFLOW_UNKNOWN: {
    http: 404,
    retry: "never",
    meaning: "No overflow is configured for this upstream, or there is no such tier, approval or reservation.",
  },
  APPROVAL_IN_USE: {
    http: 409,
    retry: "never",
    meaning: "The approval of this job for this tier was used, or is being used.",
  },
  OVERFLOW_HELD: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "The card is loaded and no tier may take the job, so it waits.",
  },
  OVERFLOW_LEDGER_UNAVAILABLE: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "The ledger of the money can't be used, and without it nothing is spent.",
  },
  OVERFLOW_TIER_FAILED: {
    http: 502,
    retry: "never",
    meaning: "A tier took the job and failed it; the message has the tier's reason.",
  },
  OVERFLOW_OUTCOME_UNKNOWN: {
    http: 502,
    retry: "never",
    meaning:
      "A tier may have taken the job, and nobody knows what became of it. It is not sent again; the money stays held until an operator settles it.",
  },
  INTERNAL: { http: 500, retry: "afterDelay", meaning: "A fault in the gateway itself; the log has the request id." },
  UPSTREAM_ERROR: {
    http: 502,
    retry: "afterDelay",
    meaning: "The engine could not be reached, or broke the connection.",
  },
  UPSTREAM_PROTOCOL: {
    http: 502,
    retry: "afterDelay",
    meaning: "The engine's answer is not valid HTTP, JSON or event stream.",
  },
  ENGINE_ERROR: {
    http: 502,
    retry: "never",
    meaning: "The engine answered a job with an error; its answer is the job's result.",
  },
  RESULT_TOO_LARGE: {
    http: 502,
    retry: "never",
    meaning: "The answer to a job is larger than `jobs.max_result_bytes`.",
  },
  JOB_INTERRUPTED: {
    http: 502,
    retry: "afterDelay",
    meaning: "The process that ran the job ended in each of its attempts.",
  },
  JOB_PARTS_FAILED: { http: 502, retry: "never", meaning: "Parts of the job failed; the message names them." },
  JOB_STORE_UNAVAILABLE: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning:
      "The store of the jobs can't be reached, has no room on its disk or in its server, or is slower than it may be; nothing was accepted.",
  },
  FILE_STORE_UNAVAILABLE: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "The store of files and batches can't be reached, or is slower than it may be.",
  },
  QUEUE_TIMEOUT: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "No slot became free within the class's `timeout_s` or the request's own deadline.",
  },
  UPSTREAM_UNAVAILABLE: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "No endpoint of the upstream can take work; the message says why.",
  },
  DRAINING: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "The gateway is stopping and takes no new work.",
  },
  COLD_START: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "The model is being started and was not ready in time.",
  },
  UPSTREAM_TIMEOUT: {
    http: 504,
    retry: "afterDelay",
    meaning: "The engine sent no first event in time, fell silent, or the total time was spent.",
  },
  NOT_LEADER: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning:
      "Only the leading control plane can do this, and this one does not lead; the message names the one that does.",
  },
  STORE_UNAVAILABLE: {
    http: 503,
    retry: "afterDelay",
    retryAfter: true,
    meaning: "The control plane's database did not answer in time. Running engines and requests go on without it.",
  },
  STORE_REFUSED: {
    http: 500,
    retry: "never",
    meaning:
      "The control plane's database is damaged, or not one of this program's. Exit code 1, with the way back in words.",
  },
  JOB_DEADLINE: {
    http: 504,
    retry: "never",
    meaning:
      "The job's own deadline passed before it had ended. The message says whether an engine may have done it already; to have it done, submit it anew with a longer `deadline_s`, under another `Idempotency-Key`.",
  },
  CONFIG_INVALID: {
    http: 500,
    retry: "never",
    meaning: "The configuration file has mistakes; each is listed. Exit code 2.",
  },
  COORDINATION_UNSUITABLE: {
    http: 500,
    retry: "never",
    meaning:
      "The Redis of `coordination: redis` answers, but can't do what is needed; the message names what is missing. Exit code 1.",
  },
  USAGE: { http: 500, retry: "never", meaning: "The command line can't be understood. Exit code 2." },
} as const satisfies Record<
  string,
  { http: number; retry: "never" | "afterDelay"; retryAfter?: true; meaning: string }
>;

export type ErrorCode = keyof typeof ERRORS;

export class YardmasterError extends Error {
  override readonly name = "YardmasterError";
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

export function hasErrorCode<C extends ErrorCode>(err: unknown, code: C): err is Error & { code: C } {
  return err instanceof Error && "code" in err && err.code === code;
}

/** Whether it is the system's error of this code, such as ENOENT. */
export const hasSystemCode = (err: unknown, code: string): boolean =>
  err instanceof Error && "code" in err && err.code === code;

/** What was thrown, in its own words; anything can be. */
export const messageOf = (err: unknown): string => (err instanceof Error ? err.message : String(err));
