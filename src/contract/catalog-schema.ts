import { z } from "zod";
import { REPLICA_ENGINES } from "./catalog.ts";

/** The catalog as its author writes it: snake_case, units in the names. `resolve-catalog.ts` turns it into a `Catalog`. */

export const MODELS_MAX = 10_000;
const CLASS_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const GIGABYTES_MAX = 1_000_000;

const servedName = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,255}$/,
    "use 1 to 256 letters, digits or ._:/@+-, starting with a letter or digit",
  )
  // Whatever reads a URL takes such a segment away, and another model would be meant.
  .regex(/^(?!.*\/\.{1,2}(?:\/|$))/, "must have no segment that is `.` or `..`, since no path could name the model");
// oxlint-disable-next-line no-control-regex -- control characters are what it keeps out
const NO_CONTROLS = /^[^\u0000-\u001f\u007f]*$/;
const plainText = (max: number): z.ZodString =>
  z.string().max(max).regex(NO_CONTROLS, "holds a control character, such as a line break");
const gigabytes = z.number().positive().max(GIGABYTES_MAX);
const labels = z.record(
  z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/, "label names have 1 to 63 letters, digits or ._/-"),
  plainText(256),
);

export const profileEntry = z.strictObject({
  engine: z
    .enum(REPLICA_ENGINES)
    .describe("The program that serves the model. No agent of this version starts `comfyui`: a `command` profile can."),
  source: plainText(2048)
    .min(1)
    .optional()
    .describe(
      "Where the weights are: a path on the node, or `file:///PATH`, `hf://ORGANISATION/MODEL@REVISION` (with `/FILE` for one file), `https://…` (one file) or `s3://BUCKET/KEY` (with a slash at the end all below it). All but paths are fetched into the node's cache.",
    ),
  sha256: z
    .string()
    .regex(/^[0-9a-f]{64}$/, "use 64 lower-case hex digits")
    .optional()
    .describe("SHA-256 of the source, where it is one file. Checked when given."),
  gpu: z
    .strictObject({
      class: z
        .array(z.string().regex(CLASS_NAME, "use the short name of a card, such as h200"))
        .nonempty()
        .max(64)
        .describe("GPU classes that will do."),
      count: z.int().min(1).max(1024).default(1).describe("Cards on each node."),
      memory_gb: gigabytes.describe("Memory needed on each card, in GB (10⁹ bytes)."),
    })
    .optional()
    .describe("Absent: the engine runs on the CPU. Engines that can't do without a GPU must have it."),
  cpu: z
    .strictObject({
      cores: z.number().positive().max(4096).default(1).describe("Processor cores."),
      memory_gb: gigabytes.describe("Main memory, in GB (10⁹ bytes)."),
    })
    .optional()
    .describe("What the engine needs of the machine itself."),
  disk_gb: z
    .number()
    .min(0)
    .max(GIGABYTES_MAX)
    .default(0)
    .describe("Room for the weights in GB, for nodes that don't hold them yet."),
  args: z
    .record(
      z
        .string()
        .regex(
          /^[A-Za-z][A-Za-z0-9._-]{0,127}$/,
          "write the engine's flag without its dashes: letters, digits and ._-, starting with a letter",
        ),
      z.union([plainText(4096), z.number(), z.boolean(), z.null()]),
    )
    .default({})
    .describe("The engine's own flags, without dashes. `true` and empty stand for a flag without a value."),
  env: z
    .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, "use letters, digits and _"), plainText(4096))
    .default({})
    .describe("Environment variables of the engine."),
  command: z
    .array(plainText(4096))
    .nonempty()
    .max(256)
    .optional()
    .describe("Program and arguments of engine `command`. The node's own configuration must allow the program."),
});

export const modelEntry = z.strictObject({
  name: servedName.describe("The name that requests ask for."),
  aliases: z.array(servedName).max(64).default([]).describe("Further names of the same model."),
  priority: z.int().min(0).max(1000).default(50).describe("Who goes first, and may displace whom; the higher wins."),
  replicas: z
    .strictObject({
      min: z.int().min(0).max(10_000).default(1).describe("Kept running always. 0: started on demand."),
      max: z.int().min(1).max(10_000).optional().describe("Absent: `min`, and at least 1."),
    })
    .prefault({})
    .describe("How many replicas."),
  idle_stop_s: z
    .number()
    .positive()
    .max(31_536_000)
    .optional()
    .describe("Not asked for this long: replicas may stop. Absent: never."),
  autoscale: z
    .strictObject({
      target_in_flight_per_slot: z
        .number()
        .positive()
        .max(1)
        .default(0.7)
        .describe("Part of the slots in use to aim at."),
      up_after_s: z.number().positive().max(86_400).default(30).describe("Above it for this long: one more."),
      down_after_s: z.number().positive().max(86_400).default(600).describe("Below it for this long: one less."),
    })
    .optional()
    .describe(
      "Follow the load between `min` and `max`. Absent: don't. Acts only while every gateway's word on the load is known.",
    ),
  slots_per_replica: z.int().min(1).max(100_000).default(16).describe("Requests that one replica takes at once."),
  rollout: z
    .enum(["manual", "auto"])
    .default("manual")
    .describe("Whether a changed profile restarts its replicas by itself."),
  allow_pickle: z
    .boolean()
    .default(false)
    .describe(
      "Let its weights be in pickle formats (`.bin`, `.pt`, `.pth`, `.ckpt`, `.pkl`, …). Loading one runs code of whoever made it, with the engine's rights.",
    ),
  profiles: z
    .array(profileEntry)
    .nonempty()
    .max(32)
    .describe("How to run it; tried in order, the first that fits is used."),
  nodes: z
    .strictObject({
      require: labels.default({}).describe("Labels that a node must have."),
      avoid: labels.default({}).describe("Labels that a node must not have."),
      gpu_uuids: z
        .array(plainText(128).min(1))
        .max(1024)
        .default([])
        .describe("The only cards that may be used. Empty: any."),
    })
    .prefault({})
    .describe("Where it may run."),
  multi_node: z
    .strictObject({
      nodes: z.int().min(2).max(64).describe("Nodes of one replica."),
      fabric: z.enum(["same"]).default("same").describe("The nodes share one interconnect."),
    })
    .optional()
    .describe("One replica over several nodes, with `gpu.count` cards on each."),
});

export const catalogFile = z.strictObject({
  models: z.array(modelEntry).max(MODELS_MAX).describe("Every model that can be asked for. `[]` if there is none."),
});

export type CatalogFile = z.output<typeof catalogFile>;
export type ModelEntry = z.output<typeof modelEntry>;
export type ProfileEntry = z.output<typeof profileEntry>;
