import { z } from "zod";
import { currencyCode, httpUrl, seconds } from "./config-fields.ts";
import { PROVIDER_KINDS } from "./provider-settings.ts";

/** The part of a tier in the configuration file that says how its place is spoken to. */

const envName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "use the name of an environment variable");
const path = z
  .string()
  .max(1_024)
  .regex(/^\/[\x21-\x7e]*$/, "use a path that begins with /");
const taskPath = path.refine((text) => text.includes("{id}"), "put `{id}` where the task's id stands");
const pointer = z
  .string()
  .max(256)
  .regex(/^(?:\/(?:[^~/]|~[01])*)+$/, "use a JSON pointer such as /data/task_id");
const states = z.array(z.string().min(1).max(64)).nonempty().max(32);
const method = z.enum(["GET", "POST", "PUT", "PATCH", "DELETE"]);

const price = z
  .strictObject({
    per_second: z.number().positive().max(1_000_000).optional().describe("For each second of video."),
    per_call: z.number().positive().max(1_000_000).optional().describe("For each call, whatever it asks for."),
    per_1k_tokens: z
      .number()
      .positive()
      .max(1_000_000)
      .optional()
      .describe("For each thousand tokens, prompt and answer alike."),
    currency: currencyCode.describe("Of the amounts, such as `EUR`."),
  })
  .refine(
    (given) =>
      [given.per_second, given.per_call, given.per_1k_tokens].filter((amount) => amount !== undefined).length === 1,
    "give exactly one of per_second, per_call and per_1k_tokens",
  );

const template = z
  .strictObject({
    submit: z.strictObject({
      method: method.default("POST").describe("Of the request that submits work; its body is the job's JSON."),
      path: path.describe("Where work is submitted, after `base_url`."),
      task_id: pointer.describe("Where its answer names the task."),
      idempotency_header: z
        .string()
        .regex(/^[A-Za-z0-9-]{1,64}$/)
        .optional()
        .describe("Header for a key that stays the same for all attempts of a job. Absent: none is sent."),
    }),
    poll: z.strictObject({
      method: method.default("GET").describe("Of the request that asks for a task."),
      path: taskPath.describe("Where a task is asked for; `{id}` stands for its id."),
      status: pointer.describe("Where the answer names the task's state."),
      running: states.describe("States of a task that has not ended."),
      succeeded: states.describe("States of a task that has its result."),
      failed: states.describe("States of a task that has none and will have none."),
      progress: pointer.optional().describe("Where the answer tells how far it is, from 0 to 1. Absent: nowhere."),
      error: pointer.optional().describe("Where the answer says why it failed. Absent: nowhere."),
      charged: pointer
        .optional()
        .describe("Where the answer says what was charged, in `price.currency`. Absent: what was reserved is charged."),
    }),
    result: z
      .strictObject({
        url: pointer.optional().describe("Where the look at an ended task names the address of its result."),
        path: taskPath
          .optional()
          .describe("Where a result is fetched, after `base_url`; `{id}` stands for the task's id."),
      })
      .refine((given) => (given.url === undefined) !== (given.path === undefined), "give either url or path"),
    find: z
      .strictObject({
        method: method.default("GET").describe("Of the request that asks for the task of a key."),
        path: path
          .refine((text) => text.includes("{key}"), "put `{key}` where the job's key stands")
          .describe("Where the task is asked for that was made for a key; `{key}` stands for it."),
        task_id: pointer.describe("Where its answer names the task."),
      })
      .optional()
      .describe(
        "With `submit.idempotency_header`: how the task is found of a submission whose answer was lost. Absent: its money stays held until an operator settles it.",
      ),
    cancel: z
      .strictObject({
        method: method.default("DELETE").describe("Of the request that calls a task off."),
        path: taskPath.describe("Where a task is called off; `{id}` stands for its id."),
      })
      .optional()
      .describe("How a task is called off. Absent: it can't be."),
    error: pointer.optional().describe("Where an answer of status 200 names an error. Absent: nowhere."),
  })
  .refine(
    ({ submit, find }) => find === undefined || submit.idempotency_header !== undefined,
    "`find` needs `submit.idempotency_header`: what was submitted without a key can't be found by it",
  )
  .describe("With `provider: http`: how the place takes, tells of and hands out work.");

export const providerFields = {
  provider: z
    .enum(PROVIDER_KINDS)
    .describe(
      "What the place speaks: MiniMax's or Kling's video API, OpenAI's API (also another site's gateway), or `http`: any API described under `http`.",
    ),
  model: z.string().min(1).max(256).optional().describe("The model as the place calls it. Absent: as the job does."),
  base_url: httpUrl
    .optional()
    .describe("Base URL of the place, without the `/v1`. Absent: MiniMax's or Kling's international one."),
  key_env: envName.optional().describe("Environment variable that holds the place's API key; Kling's access key."),
  secret_key_env: envName
    .optional()
    .describe(
      "With `provider: kling`: environment variable that holds the secret key, which signs each request's token.",
    ),
  price: price
    .optional()
    .describe("What the place charges. Needed for `minimax` and `kling`; absent for others: they charge nothing."),
  http: template.optional(),
  timeouts: z
    .strictObject({
      submit_s: seconds.default(60).describe("For a submission and its whole answer. It is never sent again."),
      poll_s: seconds.default(20).describe("For one look at a task, and for calling it off."),
      fetch_s: seconds.default(300).describe("For the bytes of a result."),
    })
    .prefault({}),
};

export const providerConfig = z.object(providerFields);
export type ProviderFile = z.output<typeof providerConfig>;
